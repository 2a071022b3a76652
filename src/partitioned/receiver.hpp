// The receiving side. For each of the sender's parts there is a word that becomes the number of the
// run when the part has arrived. During a run the receiver does nothing but look at these words.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fence.hpp"
#include "partitioned/partitioned.hpp"

namespace heddle::partitioned {

class Receiver final : public Partitioned {
 public:
  Receiver(engine::Worker& worker, Switchboard& board, const Shape& shape, void* data);
  ~Receiver() override;
  // Makes the data reachable for the sender. Call it before the receive is matched.
  base::Status prepare();

  // heddle_parrived. Any thread.
  base::Status arrived(std::uint32_t partition);
  // Bytes of all of the sender's parts; 0 before it is matched. Any thread.
  [[nodiscard]] std::uint64_t sent() const { return words_.load(std::memory_order_acquire) == nullptr ? 0 : sent_; }

  // ---- inside
  void release() override;
  // Matches a send of `sent` bytes in all, which this receive has room for. peer_number: the
  // sender's number of its operation. Allocates the words and tells the sender where to put.
  void accept(std::uint64_t peer_number, std::uint32_t partitions, std::uint64_t sent);

 private:
  base::Status begin_run(std::uint64_t run) override;
  base::Status look() override;
  void describe(tap::Wait& wait) override;
  [[nodiscard]] const wire::PartitionedPlaces* places() const override { return &places_; }
  [[nodiscard]] std::uint64_t notice_number(wire::PartitionedKind /*kind*/) const override { return run(); }

  // True: the sender's part has arrived in this run. Not to be called with 0 words.
  [[nodiscard]] static bool has(std::uint64_t* words, std::uint64_t part, std::uint64_t run) {
    // Partner: the signal of the put, which follows its data.
    if (std::atomic_ref(words[part]).load(std::memory_order_acquire) < run) return false;
    base::show_acquire(&words[part]);
    base::show_learnt();  // the data, which this process may have written for the sender
    return true;
  }
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  [[nodiscard]] Range covering(std::uint32_t partition) const;
  [[nodiscard]] bool covered(std::uint32_t partition) const;

  void* const data_;
  // Number 0: the data is in one of the program's regions, or there are no bytes. This memory is
  // lent, not a region, so that region_around() does not find it for others: it ends with this
  // operation.
  engine::LentMemory lent_;
  // Inside, until words_ is set.
  engine::Region* words_region_ = nullptr;
  wire::PartitionedPlaces places_{};
  std::uint32_t senders_ = 0;  // partitions of the sender
  std::uint64_t sent_ = 0;     // bytes of all of them
  // Release by accept(), after all of the above; partner: the acquire loads of the readers.
  std::atomic<std::uint64_t*> words_{nullptr};
  // the program's thread: all of the sender's parts before this one have arrived in this run
  std::uint32_t come_ = 0;
};

}  // namespace heddle::partitioned
