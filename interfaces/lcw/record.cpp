#include "lcw/record.hpp"

#include <memory>
#include <mutex>
#include <vector>

namespace heddle::for_lcw {
namespace {

// Batches of records that threads exchange, as lists. Never destroyed: threads may end after main
// has.
struct Shared {
  std::mutex mutex;
  std::vector<OperationRecord*> batches;
  std::vector<std::unique_ptr<OperationRecord[]>> blocks;
};
Shared& shared() {
  static auto* const the_one = new Shared;
  return *the_one;
}

}  // namespace

thread_local OperationRecords::Kept* OperationRecords::t_kept = nullptr;

// Gives back a thread's kept records when it ends.
struct OperationRecords::Exit {
  Kept kept{nullptr, 0};
  ~Exit() {
    t_kept = nullptr;
    if (kept.first == nullptr) return;
    const std::lock_guard lock(shared().mutex);
    shared().batches.push_back(kept.first);
  }
};

OperationRecords::Kept* OperationRecords::mine() {
  static thread_local Exit exit;
  t_kept = &exit.kept;
  return t_kept;
}

OperationRecord* OperationRecords::take_batch() {
  Kept* kept = mine();
  if (kept->first != nullptr) return take();
  {
    const std::lock_guard lock(shared().mutex);
    if (!shared().batches.empty()) {
      kept->first = shared().batches.back();
      shared().batches.pop_back();
    } else {
      shared().blocks.push_back(std::make_unique<OperationRecord[]>(kBatch));
      OperationRecord* block = shared().blocks.back().get();
      for (std::size_t i = 0; i < kBatch; ++i) block[i].next = i + 1 < kBatch ? &block[i + 1] : nullptr;
      kept->first = block;
    }
  }
  // Batches of threads that have ended may be of any length.
  for (const OperationRecord* record = kept->first; record != nullptr; record = record->next) ++kept->count;
  return take();
}

void OperationRecords::give_batch(OperationRecord* record) {
  Kept* kept = mine();
  if (kept->count >= 2 * kBatch) {
    OperationRecord* batch = kept->first;
    OperationRecord* last = batch;
    for (std::size_t i = 1; i < kBatch; ++i) last = last->next;
    kept->first = last->next;
    kept->count -= kBatch;
    last->next = nullptr;
    const std::lock_guard lock(shared().mutex);
    shared().batches.push_back(batch);
  }
  give(record);
}

}  // namespace heddle::for_lcw
