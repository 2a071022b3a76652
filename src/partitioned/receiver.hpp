// The receiving side. Each of the sender's parts has a word that becomes the number of the run when
// the part has come; looking at the words is all that happens here in a run.
#pragma once

#include <atomic>
#include <cstdint>

#include "partitioned/partitioned.hpp"

namespace heddle::partitioned {

class Receiver final : public Partitioned {
 public:
  Receiver(engine::Worker& worker, Switchboard& board, const Shape& shape, void* data);
  ~Receiver() override;
  // Makes the data reachable for the sender.
  base::Status prepare();

  // heddle_parrived. Any thread.
  base::Status arrived(std::uint32_t partition);

  // ---- inside
  void release() override;
  // With a send of the same total; peer_number: the sender's. Its words are made, and it is told
  // where to put.
  void accept(std::uint64_t peer_number, std::uint32_t partitions);

 private:
  base::Status begin_run(std::uint64_t run) override;
  base::Status look() override;
  void describe(std::span<char> text) override;
  [[nodiscard]] const wire::PartitionedPlaces* places() const override { return &places_; }
  [[nodiscard]] std::uint64_t notice_number(wire::PartitionedKind /*kind*/) const override { return run(); }

  // The sender's part has come in this run; not of 0 words.
  [[nodiscard]] static bool has(std::uint64_t* words, std::uint64_t part, std::uint64_t run) {
    // Partner: the signal of the put, which follows its data.
    return std::atomic_ref(words[part]).load(std::memory_order_acquire) >= run;
  }
  [[nodiscard]] bool covered(std::uint32_t partition) const;

  void* const data_;
  // Number 0: the data is in a region of the program's, or there are no bytes. Lent, not a region:
  // region_around() must not find for others what ends with this.
  engine::LentMemory lent_;
  // Inside, until words_ is there.
  engine::Region* words_region_ = nullptr;
  wire::PartitionedPlaces places_{};
  std::uint32_t senders_ = 0;  // partitions of the sender
  // Release by accept(), with all of the above; partner: the acquire loads of who looks.
  std::atomic<std::uint64_t*> words_{nullptr};
  // the program's thread: the sender's parts before it have come in this run
  std::uint32_t come_ = 0;
};

}  // namespace heddle::partitioned
