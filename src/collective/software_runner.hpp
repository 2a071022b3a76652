// Runs an operation by software: the session queue on the memory of the members. Mapped memory is
// accessed directly, other memory by commands of the context's internal worker. This way is always
// possible.
#pragma once

#include <memory>
#include <vector>

#include "collective/assembly.hpp"
#include "collective/runner.hpp"
#include "collective/session_queue.hpp"

namespace heddle::collective {

class SoftwareRunner final : public SessionQueue {
 public:
  // Never null.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  ~SoftwareRunner() override;

  base::Status bind(const Schedule& schedule, std::span<const SetupRecord> records) override;
  void set_buffers(const Call& call) override;
  [[nodiscard]] Memory retire(const Past& past) override;

 private:
  SoftwareRunner(const Plan& plan, const Places& places);
  base::Status bind_member(std::uint32_t member, const SetupRecord& record, RankMemory* memory);
  base::Result<engine::RemoteRegion*> region_of(std::uint32_t member, const SetupRecord& record,
                                                SetupRecord::Where where);

  Team& team_;
  const Call& call_;              // the operation's
  const Places& places_;          // the operation's
  const std::uint64_t received_;  // bytes of the caller's buffer
  // members get from memory here, into which the caller's buffer is copied first
  const bool exposes_;
  std::vector<engine::RemoteRegion*> imported_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
};

}  // namespace heddle::collective
