// Brings bytes and credits into regions of another rank by operations of the context's internal
// worker.
#pragma once

#include <array>

#include "collective/session_queue.hpp"
#include "engine/region.hpp"

namespace heddle::engine {
class Worker;
}

namespace heddle::collective {

class RegionCarrier final : public Carrier {
 public:
  struct Base {
    engine::RemoteRegion* region = nullptr;
    std::uint64_t offset = 0;
  };
  // `places`: by Place; nothing is put to send. All regions must stay until no put of this is under
  // way.
  RegionCarrier(engine::Worker& port, const Base& counters, const std::array<Base, 3>& places)
      : port_(port), counters_(counters), places_(places) {}

  bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
           std::atomic<std::int32_t>* ended) override;
  base::Status give(std::uint32_t counter, std::uint64_t credits) override;

 private:
  engine::Worker& port_;
  const Base counters_;
  const std::array<Base, 3> places_;
};

}  // namespace heddle::collective
