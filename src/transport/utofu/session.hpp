// Session queues as VCQs in session mode: one for each queue, and one common VCQ in normal mode for
// the free queues of all Sessions. Those of a link are on the TNI with its number, counted round,
// if that has one left; the others where there are fewest.
//
// Commands are prepared once (utofu_prepare_*) and posted again for each run, those of a queue by
// one call; the last of each has a TCQ notice, whose record says that all have been executed and
// that their slots are free. Credits are SPS, so every command is one slot, and every put has
// STRONG_ORDER: segments are stored, counted and read in the order in which they were put. A put of
// credits alone carries 8 bytes, from one word of the rank to another, since only puts are known to
// carry SPS on the machine. Nobody asks for MRQ notices; what comes there is an error.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/session.hpp"
#include "transport/utofu/home.hpp"

namespace heddle::transport::utofu {

// What is posted for the free queue of one Session.
struct FreeEnd {
  // Under way: kUnderWay; then the code of its end. Release by who has polled the record, acquire
  // by the Session.
  static constexpr int kUnderWay = 1;
  std::atomic<int> code{UTOFU_SUCCESS};
};

class Sessions final : public SessionQueues {
 public:
  explicit Sessions(Home& home);
  ~Sessions() override;

  [[nodiscard]] Limits limits() const override;
  [[nodiscard]] base::Result<std::unique_ptr<Session>> open(std::span<const std::uint32_t> links,
                                                            std::span<std::byte> memory) override;

  // ---- for its Sessions
  [[nodiscard]] Home& home() { return home_; }
  // From one of them credits are put, to the other they are.
  [[nodiscard]] std::byte* words() const { return words_.data(); }
  static constexpr std::uint64_t kFrom = 0;
  static constexpr std::uint64_t kTo = 256;
  static constexpr std::uint64_t kWordBytes = 512;

  // The common VCQ. Its registrations belong to who has made them.
  [[nodiscard]] const Vcq& plain() const { return plain_; }
  [[nodiscard]] utofu_stadd_t plain_words() const { return plain_words_; }
  // Slots of 4 words each. SUCCESS: all were taken; *end, which is under way, tells when the last
  // of a run is executed. Else none, and why.
  int post_plain(std::span<const std::uint64_t> slots, FreeEnd* end);
  // Looks for the ends of what was posted. Negative: the common VCQ cannot be polled.
  int poll_plain();
  // A queue without commands has not taken so many at once. Tells it, if limits() says otherwise;
  // once.
  void refused(std::size_t commands);
  // It may still be written to.
  void keep(std::unique_ptr<FreeEnd> end);

 private:
  base::Status set_up_locked();

  Home& home_;
  std::atomic<bool> told_{false};  // by refused(). Relaxed: nothing follows from it
  std::mutex mutex_;               // guards what follows; what is set up once is read without it
  bool ready_ = false;
  Pages words_;
  Vcq plain_;
  utofu_stadd_t plain_words_ = 0;
  std::vector<std::unique_ptr<FreeEnd>> left_;
};

}  // namespace heddle::transport::utofu
