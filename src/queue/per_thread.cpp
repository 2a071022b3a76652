#include "queue/per_thread.hpp"

namespace heddle::queue::detail {

ThreadSeats& ThreadSeats::mine() {
  static thread_local ThreadSeats seats;
  return seats;
}

ThreadSeats::~ThreadSeats() {
  for (const Entry& entry : entries_) entry.seat->end();
}

void* ThreadSeats::search(std::uint64_t owner) {
  for (const Entry& entry : entries_) {
    if (entry.owner != owner) continue;
    latest_owner_ = owner;
    latest_ = entry.value;
    return entry.value;
  }
  return nullptr;
}

// Also the time to forget what is left of owners that have ended: a thread that outlives many does not fill up.
void ThreadSeats::add(std::uint64_t owner, void* value, std::shared_ptr<ThreadSeat> seat) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.seat->over(); });
  entries_.push_back({owner, value, std::move(seat)});
  latest_owner_ = owner;
  latest_ = value;
}

std::uint64_t ThreadSeats::new_owner() {
  static std::atomic<std::uint64_t> last{0};  // relaxed: a number
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace heddle::queue::detail
