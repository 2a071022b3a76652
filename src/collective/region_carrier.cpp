#include "collective/region_carrier.hpp"

#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {
namespace {

void end_put(void* arg, heddle_status status) {
  // Release, partner: the acquire load in SessionQueue::settle().
  static_cast<std::atomic<std::int32_t>*>(arg)->store(status == HEDDLE_DONE ? Carrier::kThere : status,
                                                      std::memory_order_release);
}

}  // namespace

bool RegionCarrier::put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
                        std::atomic<std::int32_t>* ended) {
  if (place == Place::beside) offset = beside_at(offset);
  const Base& base = place == Place::beside ? counters_ : places_[static_cast<std::size_t>(place)];
  if (base.region == nullptr || !base.region->range(base.offset + offset, bytes)) {
    end_put(ended, HEDDLE_ERR_RANGE);
    return true;
  }
  engine::Completion completion;
  completion.fn = end_put;
  completion.arg = ended;
  // A put does not write its source.
  const engine::Block block{engine::Kind::put, const_cast<std::byte*>(source), bytes, base.region,
                            base.offset + offset};
  const base::Status status = engine::post(port_, block, completion);
  if (status == HEDDLE_AGAIN) return false;
  if (status == HEDDLE_DONE || status < 0) end_put(ended, status);
  return true;
}

// Without a completion: the only thing that can still go wrong is the peer's death, which is
// detected by other means.
base::Status RegionCarrier::give(std::uint32_t counter, std::uint64_t credits) {
  const std::uint64_t offset = counters_.offset + counter * sizeof(CounterWord);
  if (!counters_.region->range(offset, sizeof(CounterWord))) return HEDDLE_ERR_RANGE;
  engine::Requester::AtomicRequest request{};
  request.op = HEDDLE_ADD64;
  request.remote = counters_.region;
  request.offset = offset;
  request.operand = credits;
  return engine::start(port_, engine::AtomicStart{request, counters_.region->rank, {}});
}

}  // namespace heddle::collective
