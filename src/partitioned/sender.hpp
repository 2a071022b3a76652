// The sending side. Each part is put with a signal: the receiver's word for the part becomes the
// number of the run, so that nothing is reset between runs.
//
// queue::PartMarks decides which thread posts which part. A claimed part is being posted by the
// thread that claimed it, is under way, or is in queue_. A part that could not be posted in a
// handler of another worker is marked again, and stray_ tells the next look(). The sender learns
// the addresses before it opens the first run; they never change. The receiver begins run r + 1
// only when all parts of run r have arrived: so nothing of run r is still being put when run r + 1
// is open.
#pragma once

#include <memory>
#include <vector>

#include "partitioned/partitioned.hpp"
#include "queue/part_marks.hpp"

namespace heddle::partitioned {

class Sender final : public Partitioned {
 public:
  // May throw std::bad_alloc.
  Sender(engine::Worker& worker, Switchboard& board, const Shape& shape, const void* data);
  ~Sender() override;

  // heddle_pready. Any thread.
  base::Status ready(std::uint32_t partition);

  // ---- inside
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  // True: the peer has not yet answered its offer.
  [[nodiscard]] bool waits() const { return !matched() && !failed(); }
  void accepted(std::uint64_t peer_number, const wire::PartitionedPlaces& places, std::uint64_t run);
  void begun(std::uint64_t run);
  bool advance() override;

 private:
  // The argument of a put's callback.
  struct Part {
    Sender* owner = nullptr;
    std::uint32_t number = 0;
  };

  base::Status begin_run(std::uint64_t run) override;
  base::Status look() override;
  void describe(tap::Wait& wait) override;
  [[nodiscard]] std::uint64_t notice_number(wire::PartitionedKind /*kind*/) const override { return sequence_; }

  void end(std::uint32_t partition, base::Status status);
  static void end_put(void* arg, heddle_status status);
  bool put_directly(std::uint32_t partition, std::uint64_t run);
  [[nodiscard]] engine::PutSignalStart command(std::uint32_t partition, std::uint64_t run);
  base::Status post(std::uint32_t partition, std::uint64_t run);
  base::Status post_later(std::uint32_t partition);
  bool posted(std::uint32_t partition, base::Status status);
  bool post_queued();
  void collect();
  base::Result<engine::RemoteRegion*> import(std::span<const std::byte> packed, std::uint64_t offset,
                                             std::uint64_t bytes);
  [[gnu::cold]] base::Status refuse_mark(std::uint32_t partition) const;

  // Read by every thread that marks parts.
  std::byte* const source_;  // only read
  std::unique_ptr<Part[]> parts_;
  // of the last run that the receiver has begun, once its places are known
  queue::PartMarks<> marks_;
  engine::RemoteRegion* data_ = nullptr;
  engine::RemoteRegion* words_ = nullptr;
  std::uint64_t offset_ = 0;
  // Release by post_later(), partner: the exchange in look().
  std::atomic<bool> stray_{false};

  // A part did not arrive. Relaxed: the release of the part's state publishes it.
  std::atomic<bool> put_failed_{false};

  // the program's thread: all parts before this one have ended in this run
  std::uint32_t ended_ = 0;
  // Inside.
  bool bound_ = false;
  bool told_ = false;        // the receiver was told that a part did not arrive
  std::uint64_t begun_ = 0;  // may be set before bound_
  std::uint64_t sequence_ = 0;
  // parts from head_ on are claimed and not posted. Reserved for all parts, so that it never grows
  std::vector<std::uint32_t> queue_;
  std::size_t head_ = 0;
};

}  // namespace heddle::partitioned
