// One operation under way, from its post until its completion was delivered; and the store of free
// records. Usually it needs no lock, no atomic and no malloc.
#pragma once

#include <cstddef>

#include <lcw.hpp>

#include "heddle/heddle.h"

namespace heddle::for_lcw {

class Completion;

// A send or put touches only the first cache line and `next`.
struct alignas(64) Record {
  ::lcw::request_t request;
  Completion* completion;
  Record* next;            // while it is free, or waits for its handler
  heddle_receive receive;  // of a receive: the library's until it has completed
};

// Each thread keeps some free records, and exchanges them with the others in batches: a thread that
// only posts takes what a thread that only makes progress gives back. Memory is bounded by the most
// records that were in use at once, and is kept for the next initialize.
class Records {
 public:
  [[nodiscard]] static Record* take() {
    Kept* kept = t_kept;
    if (kept == nullptr || kept->first == nullptr) return take_batch();
    Record* record = kept->first;
    kept->first = record->next;
    --kept->count;
    return record;
  }
  static void give(Record* record) {
    Kept* kept = t_kept;
    if (kept == nullptr || kept->count >= 2 * kBatch) return give_batch(record);
    record->next = kept->first;
    kept->first = record;
    ++kept->count;
  }
  // Not inlined: for code that calls handlers, which may move a user-level thread to another one of
  // the system, whose thread-local variables have other addresses.
  [[gnu::noinline]] static void give_after_handler(Record* record) { give(record); }

 private:
  static constexpr std::size_t kBatch = 64;
  struct Kept {
    Record* first;
    std::size_t count;
  };
  static thread_local Kept* t_kept [[gnu::tls_model("initial-exec")]];

  static Record* take_batch();
  static void give_batch(Record* record);
  static Kept* mine();
  struct Exit;
};

}  // namespace heddle::for_lcw
