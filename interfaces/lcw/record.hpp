// One operation under way, from its post until its completion was delivered; and the store of free
// records. Usually it needs no lock, no atomic and no malloc.
#pragma once

#include <cstddef>

#include <lcw.hpp>

#include "heddle/heddle.h"

namespace heddle::for_lcw {

class CompletionObject;

// A send or put touches only the first cache line and `next`.
struct alignas(64) OperationRecord {
  ::lcw::request_t request;
  CompletionObject* completion;
  OperationRecord* next;   // while it is free, or waits for its handler
  heddle_receive receive;  // of a receive: the library's until it has completed
};

// Each thread keeps some free records, and exchanges them with the others in batches: a thread that
// only posts takes what a thread that only makes progress gives back. Memory is bounded by the most
// records that were in use at once, and is kept for the next initialize.
class OperationRecords {
 public:
  [[nodiscard]] static OperationRecord* take() {
    Kept* kept = t_kept;
    if (kept == nullptr || kept->first == nullptr) return take_batch();
    OperationRecord* record = kept->first;
    kept->first = record->next;
    --kept->count;
    return record;
  }
  static void give(OperationRecord* record) {
    Kept* kept = t_kept;
    if (kept == nullptr || kept->count >= 2 * kBatch) return give_batch(record);
    record->next = kept->first;
    kept->first = record;
    ++kept->count;
  }
  // Not inlined: for code that calls handlers, which may move a user-level thread to another one of
  // the system, whose thread-local variables have other addresses.
  [[gnu::noinline]] static void give_after_handler(OperationRecord* record) { give(record); }

 private:
  static constexpr std::size_t kBatch = 64;
  struct Kept {
    OperationRecord* first;
    std::size_t count;
  };
  static thread_local Kept* t_kept [[gnu::tls_model("initial-exec")]];

  static OperationRecord* take_batch();
  static void give_batch(OperationRecord* record);
  static Kept* mine();
  struct Exit;
};

}  // namespace heddle::for_lcw
