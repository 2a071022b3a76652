// Session queues as VCQs in session mode: one VCQ for each queue, and one common VCQ in normal mode
// for the free queues of all Sessions. The queues of a link are on the TNI with the link's number,
// counted round, if that TNI has a VCQ left; the others are on the TNI with the fewest.
//
// Commands are prepared once (utofu_prepare_*) and posted again for each run, the commands of a
// queue by one call. The last command of each queue asks for a TCQ notice; its record says that all
// have been executed and that their slots are free. Credits are SPS, so every command is one slot,
// and every put has STRONG_ORDER: segments are stored, counted and read in the order in which they
// were put. A put of credits alone carries 8 bytes, from one word of the rank to another, since
// only puts are known to carry SPS on the machine. No command asks for an MRQ notice; one that
// comes all the same reports an error.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/session.hpp"
#include "transport/utofu/device.hpp"

namespace heddle::transport::utofu {

// State of the commands posted for the free queue of one Session.
struct FreeEnd {
  // kUnderWay, then the return code at the end. Release by the thread that polls the record,
  // acquire by the Session.
  static constexpr int kUnderWay = 1;
  std::atomic<int> code{UTOFU_SUCCESS};
};

class Sessions final : public SessionQueues {
 public:
  explicit Sessions(Device& device);
  ~Sessions() override;

  [[nodiscard]] Limits limits() const override;
  [[nodiscard]] base::Result<std::unique_ptr<Session>> open(std::span<const std::uint32_t> links,
                                                            std::span<std::byte> memory) override;

  // ---- for its Sessions
  [[nodiscard]] Device& device() { return device_; }
  // The words that puts of credits alone read (kFrom) and write (kTo).
  [[nodiscard]] std::byte* words() const { return words_.data(); }
  static constexpr std::uint64_t kFrom = 0;
  static constexpr std::uint64_t kTo = 256;
  static constexpr std::uint64_t kWordBytes = 512;

  // The common VCQ. A caller that registers memory with it also deregisters it.
  [[nodiscard]] const Vcq& plain() const { return plain_; }
  [[nodiscard]] utofu_stadd_t plain_words() const { return plain_words_; }
  // `slots`: 4 words each. SUCCESS: all are accepted; *end, which is kUnderWay, changes when the
  // last command of a run is executed. Else the reason, and none is accepted.
  int post_plain(std::span<const std::uint64_t> slots, FreeEnd* end);
  // Polls for the ends of posted commands. Negative: the common VCQ cannot be polled.
  int poll_plain();
  // An empty queue did not accept so many commands at once. Logs that once, if limits() allows so
  // many.
  void rejected(std::size_t commands);
  // Keeps it: it may still be written to.
  void keep(std::unique_ptr<FreeEnd> end);

 private:
  base::Status set_up_locked();

  Device& device_;
  std::atomic<bool> told_{false};  // set by rejected(). Relaxed: no other data depends on it
  std::mutex mutex_;               // guards the rest; what is set up once is read without it
  bool ready_ = false;
  Pages words_;
  Vcq plain_;
  utofu_stadd_t plain_words_ = 0;
  std::vector<std::unique_ptr<FreeEnd>> left_;
};

}  // namespace heddle::transport::utofu
