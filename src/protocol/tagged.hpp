// Tagged messages of a worker: what copies to a peer cost (CopyCosts), and the protocol (Tagged).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core.hpp"
#include "engine/objects.hpp"
#include "engine/operations.hpp"
#include "engine/protocol.hpp"
#include "protocol/credits.hpp"
#include "protocol/matching.hpp"
#include "transport/transport.hpp"
#include "wire/board.hpp"
#include "wire/messages.hpp"

namespace heddle::protocol {

// Decides whether the receiver should fetch a message of middle length, which fits one packet of
// the transport, or the sender should copy it into the packet. Between near cores a copy into
// shared memory takes a quarter of what it takes between far ones, where the kernel's single copy,
// which a receiver fetches by, is faster. No interface tells how far apart two cores are, and a
// virtual machine may move them. So copies are timed, for each worker that messages go to.
//
// Any thread; all accesses are relaxed, since these are hints: updates may be lost.
//
// Zeroed memory is a valid initial state.
class CopyCosts {
 public:
  // Messages of up to so many bytes are always copied: there both ways take about as long between
  // far cores, too.
  static constexpr std::uint64_t kAlwaysCopied = std::uint64_t{8} << 10;

  // Whether the next message is to be fetched. One in kTrial is copied all the same, so that it is
  // noticed when the cores are near again.
  [[nodiscard]] bool prefers_fetch() {
    if (Ref(ns_per_kib_).load(std::memory_order_relaxed) <= kFarNsPerKib) return false;
    const std::uint32_t fetched = Ref(fetched_).load(std::memory_order_relaxed) + 1;
    Ref(fetched_).store(fetched % kTrial, std::memory_order_relaxed);
    return fetched != kTrial;
  }
  // A copy of `bytes` bytes took `ns`. If it took very long, the thread lost its core meanwhile, so
  // the copy counts as no more than twice a far one: only two in a row change the decision.
  void copied(std::uint64_t bytes, std::uint64_t ns) {
    const std::uint64_t before = std::atomic_ref(copied_).load(std::memory_order_relaxed);
    std::atomic_ref(copied_).store(before + bytes, std::memory_order_relaxed);
    if (before < kFirstLap) return;
    const auto sample = static_cast<std::uint32_t>(std::min(ns * 1024 / bytes, std::uint64_t{2} * kFarNsPerKib));
    const std::uint32_t known = Ref(ns_per_kib_).load(std::memory_order_relaxed);
    Ref(ns_per_kib_)
        .store(known == 0 ? std::min(sample, kFarNsPerKib) : (3 * known + sample) / 4, std::memory_order_relaxed);
  }

 private:
  using Ref = std::atomic_ref<std::uint32_t>;
  // Measured, 16 and 32 KiB: 20 to 80 between near cores, above 160 between far ones.
  static constexpr std::uint32_t kFarNsPerKib = 128;
  static constexpr std::uint32_t kTrial = 32;
  // More than the longest ring that Heddle chooses. In its first lap the pages are made and mapped
  // meanwhile, which takes many times as long as the copy.
  static constexpr std::uint64_t kFirstLap = std::uint64_t{192} << 10;

  // bytes, in all
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t copied_;
  std::uint32_t ns_per_kib_;  // 0: unknown
  // since the last copy
  std::uint32_t fetched_;
};

// Where the message of a receive goes, and how its end is told.
struct ReceiveRequest {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  heddle_receive* receive = nullptr;
  engine::CallersCompletion completion;
};

// A message to be sent.
struct SendRequest {
  heddle_peer target{};
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  bool may_offer = false;  // if there is no room, a message that is long enough is offered
};

[[nodiscard]] inline bool is_tagged(const transport::Command& command) {
  return wire::kind_of(command.immediate) == wire::Kind::tagged;
}

// Tagged messages of one worker: credits and matching, the unexpected messages, and the rendezvous
// of long messages, which are fetched from the sender's memory.
//
// Life of a message. The sender reserves credit (any thread), then, inside its worker, sends the
// data in one packet, or an offer: the name of a region made of the source for this message. The
// receiver, in its progress, puts the packets of one worker into their order (where the transport
// does not keep it), and matches: with a posted receive the data is copied straight from the packet
// into place; an offer becomes a get by this worker (a Fetch), whose end is answered as any request
// is. Without a receive the packet is kept, up to the sender's credit, and matched when a receive
// is posted.
//
// Where the transport maps memory, a receive that waits for a long message is shown to its sender
// on a board (wire/board.hpp), and the sender takes it in place of an offer. Then both copy: each
// side whenever it is inside the library and has time. Receiver: tagged_inlet.cpp; sender:
// tagged_push.cpp.
//
// Receives lie in the program's heddle_receive, so their number is the program's business and costs
// the library nothing.
//
// Threads: reserve(), give_back() and names_counter() are for any thread; all else is for the
// thread inside the worker.
class Tagged final : public engine::Protocol {
 public:
  // The most bytes of a message. No memory is longer.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 56;

  explicit Tagged(engine::Core& core);
  ~Tagged() override;

  // ---- sending ----
  // Reserves the receiver's memory for a message of at most eager() bytes. False: no_room() says
  // what to do.
  template <bool kShared>
  bool reserve(heddle_peer target, std::uint64_t bytes) {
    return credit(target).template reserve<kShared>(wire::tagged_charge(bytes), window_);
  }
  // The same for a message of any length that is to be offered. It also takes one of this worker's
  // operations that are free for offers: the other operations fetch long messages, so that two
  // workers that send to each other never wait for each other.
  template <bool kShared>
  bool reserve_offer(heddle_peer target) {
    if (!core_.operations.take_offer()) return false;
    if (credit(target).template reserve<kShared>(kOfferCharge, kOfferWindows * window_)) return true;
    core_.operations.give_offer_back();
    return false;
  }
  // As reserve(), by the one thread of its worker. Returns the credit that it counts in; null: no
  // room.
  SendCredit* reserve_own(heddle_peer target, std::uint64_t bytes) {
    SendCredit& to = credit(target);
    return to.reserve<false>(wire::tagged_charge(bytes), window_) ? &to : nullptr;
  }
  // For a message that was not sent, or not offered.
  template <bool kShared>
  void give_back(heddle_peer target, std::uint64_t bytes) {
    credit(target).template give_back<kShared>(wire::tagged_charge(bytes));
  }
  template <bool kShared>
  void give_offer_back(heddle_peer target) {
    core_.operations.give_offer_back();
    credit(target).template give_back<kShared>(kOfferCharge);
  }
  // How much of the receiver's memory is in use by messages that are not known as received. Any
  // thread.
  [[nodiscard]] std::uint64_t credit_used(heddle_peer target) { return credit(target).used(); }
  // The longest message that travels in one packet.
  [[nodiscard]] std::uint64_t eager() const { return eager_; }
  // Whether a message of so many bytes is copied into one packet whatever copies cost, and needs
  // no clock.
  [[nodiscard]] bool is_always_copied(std::uint64_t bytes) const {
    return bytes <= eager_ && bytes <= CopyCosts::kAlwaysCopied;
  }
  // AGAIN, or why there never will be room. Inside.
  base::Status no_room(heddle_peer target);
  // The command of a message of at most eager() bytes. Credit is reserved. Any thread.
  static transport::Command message(const SendRequest& request) {
    transport::Command command(request.target.rank, request.target.worker, wire::encode_tagged(0, false));
    if (request.bytes == sizeof request.tag) [[likely]] {
      command.set_words(request.tag, request.data);
    } else {
      // a longer one names the request's tag
      command.set_message(request.tag, request.data, request.bytes);
    }
    return command;
  }
  // The same for a message that lies in its command (Command::inlines()).
  [[gnu::always_inline]] static transport::Command short_message(heddle_peer target, std::uint64_t tag,
                                                                 const void* data, std::uint64_t bytes) {
    transport::Command command(target.rank, target.worker, wire::encode_tagged(0, false));
    if (bytes == sizeof tag) [[likely]] {
      command.set_words(tag, data);
    } else {
      const std::uint64_t header = tag;  // else the tag would have to lie in memory in both cases
      command.set_message(header, data, bytes);
    }
    return command;
  }
  // Offers a message, which its receiver then fetches: a message that is longer, or for which there
  // is no room, or whose sender waits until it is received (HEDDLE_WHEN_MATCHED). reserve_offer()
  // was true; this call does not give back what it reserved, whatever it returns.
  base::Status offer(const SendRequest& request, const engine::CallersCompletion& completion);
  // Posts a message of at most eager() bytes: post(command), with its number where the transport
  // does not keep the order.
  template <class Post>
  base::Status post_numbered(transport::Command& command, Post&& post) {
    SendCredit& to = credit({command.rank, command.worker});
    if (!ordered_) [[unlikely]]
      command.immediate = wire::encode_tagged(static_cast<std::uint32_t>(to.sequence), false);
    const base::Status status = command.bytes > CopyCosts::kAlwaysCopied ? post_timed(command, post) : post();
    if (status == HEDDLE_DONE || status == HEDDLE_POSTED) ++to.sequence;
    return status;
  }
  // True: a message of at most eager() bytes should be offered all the same. Never if the program
  // has set eager(). Any thread.
  [[nodiscard]] bool prefers_fetch(const SendRequest& request) {
    return !eager_is_set_ && request.bytes > CopyCosts::kAlwaysCopied &&
           copy_costs_[pair(request.target)].prefers_fetch();
  }
  // True: several may be posted in one call; each must be counted afterwards.
  [[nodiscard]] bool ordered() const { return ordered_; }
  void count_sent(heddle_peer target) { ++credit(target).sequence; }

  // ---- receiving ----
  // DONE and errors are returned, and stored in *request.receive; the completion is not run.
  base::Status receive(const Wanted& wanted, const ReceiveRequest& request);
  // The same for a receive without a completion, from one worker. Its arguments are in registers,
  // so that the receive is constructed in place.
  base::Status receive_from(const heddle_wanted& wanted, void* data, std::size_t bytes, heddle_receive* receive);
  base::Status receive_claimed(const ReceiveRequest& request);
  base::Status cancel(heddle_receive* receive);
  // Both calls: AGAIN: there is none. PEER_FAILED: there is none, and there will be none.
  base::Status probe(const Wanted& wanted, heddle_receive* found);
  base::Status claim(const Wanted& wanted, heddle_receive* found);
  // Ends a receive that was never posted.
  static void end_unposted(const ReceiveRequest& request, base::Status status);

  // ---- Protocol ----
  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override;
  [[nodiscard]] std::size_t deliver(std::span<const transport::Completion> arrivals) override;
  bool advance(bool* left) override;
  void note_failures() override;
  void cancel(base::Status status) override;
  // Reports receives that have not ended, and unexpected messages.
  void report(engine::Findings& findings) const override;
  void show(tap::DebugWorker& shown) const { matching_.show(shown); }
  // Tells what a receive waits for that is posted, or whose message is on its way.
  void tell_receive(const heddle_receive& receive, std::vector<tap::Awaited>* things) const;
  void explain(const engine::Operation& operation, tap::Awaited* awaited) const override;
  // An operation that offered its source fails: after this nothing reads or copies the source any
  // more.
  void failed(const engine::Operation& operation) override;
  void ended(engine::Operation& operation) override;
  [[nodiscard]] Words words() const override { return {"tagged message", "waits to be received by"}; }

  // ---- any thread ----
  // A posted receive may still raise it; rarely also true for another counter.
  [[nodiscard]] bool names_counter(const engine::OperationCounter* counter) const {
    return named_[place_of(counter)].load(std::memory_order_acquire) != 0;
  }

 private:
  struct Posted;
  struct Kept;
  struct Fetch;
  struct Source;
  struct Offered;
  struct Shown;
  struct Inlet;
  struct View;

  static constexpr std::uint64_t kOfferCharge = wire::tagged_charge(sizeof(wire::Offer));
  // Copied messages have one window; offers may also use a second one. So a sender that has filled
  // the window may still offer, and two workers that both send before they receive do not wait for
  // each other.
  static constexpr std::uint64_t kOfferWindows = 2;

  // Only copies into memory that both sides map are timed: elsewhere DONE says nothing about them.
  template <class Post>
  [[gnu::noinline]] base::Status post_timed(const transport::Command& command, Post&& post) {
    const heddle_peer target{command.rank, command.worker};
    const std::uint64_t began = core_.job.clock().now_ns();
    const base::Status status = post();
    const bool other = target.rank != core_.job.rank();
    if (status == HEDDLE_DONE && other && core_.job.transport().direct_to(target.rank)) {
      copy_costs_[pair(target)].copied(command.bytes, core_.job.clock().now_ns() - began);
    }
    return status;
  }
  [[nodiscard]] std::size_t pair(heddle_peer peer) const { return std::size_t{peer.rank} * max_workers_ + peer.worker; }
  SendCredit& credit(heddle_peer target) { return credits_[pair(target)]; }
  [[nodiscard]] std::uint32_t number(const SendCredit& to) const {
    return ordered_ ? 0 : static_cast<std::uint32_t>(to.sequence);
  }
  static std::size_t place_of(const engine::OperationCounter* counter) {
    return (reinterpret_cast<std::uintptr_t>(counter) >> 6) % kPlaces;
  }

  base::Status post_offer(engine::Operation& operation, const wire::Offer& head);
  static Posted& posted_of(heddle_receive* receive);
  bool arrived_word(heddle_peer from, std::uint32_t immediate, std::span<const std::byte> packet);
  void arrived_unordered(heddle_peer from, Source& source, const wire::TaggedMessage& message);
  void take_in(heddle_peer from, Source& source, const wire::TaggedMessage& message, Posted* posted);
  // In a traced job: equal matched messages that are to be noted.
  struct Matches {
    heddle_peer from{};
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t times = 0;
  };
  bool take_usual(const transport::Completion& arrival, Matches* matches);
  template <bool kTraced>
  std::size_t deliver_row(std::span<const transport::Completion> arrivals);
  void note_receive(const Posted& posted);
  [[gnu::noinline]] void note_other_receive(const Posted& posted);
  void note_matches(Matches* matches);
  // In a traced job. `was_here`: the message was here before the receive.
  [[gnu::cold]] void note(tap::TraceEvent event, heddle_peer peer, std::uint64_t tag, std::uint64_t bytes,
                          bool was_here = false);
  base::Status post_receive(const Wanted& wanted, const ReceiveRequest& request);
  [[nodiscard]] bool from_failed(protocol::Source source) const;
  [[gnu::cold]] static base::Status reject_failed(protocol::Source source);
  [[nodiscard]] base::Status not_found(const Wanted& wanted) const;
  Posted* match(std::uint64_t tag, heddle_peer from);
  void take_stashed(heddle_peer from, Source& source);
  void stash(heddle_peer from, Source& source, const wire::TaggedMessage& message);
  Kept* keep(heddle_peer from, Source& source, const wire::TaggedMessage& message);
  base::Status deliver(const ReceiveRequest& request, heddle_peer from, const wire::TaggedMessage& message);
  base::Status deliver_kept(const ReceiveRequest& request, Kept* kept);
  base::Status take_kept(Posted* posted, Kept* kept);
  base::Status fetch(const ReceiveRequest& request, heddle_peer from, const wire::TaggedMessage& message);
  base::Status import(const wire::Offer& offer, heddle_peer from, engine::RemoteRegion* remote);
  base::Status start_fetch(Fetch* fetch);
  bool advance_waiting();
  base::Status end_fetch(Fetch* fetch, base::Status status);
  void free_kept(Kept* kept);
  void reject(Kept* kept, base::Status status);
  void remove_claimed(Kept* kept);
  void drop_stashes(std::uint32_t rank);
  void cancel_receives(Matching::Removed removed, base::Status status);
  void free_credit(Source& source, std::uint64_t charge);
  bool tell_credit(Source& source);
  bool tell_owed(Source& source);
  void owe(Source& source);
  bool post_word(heddle_peer to, wire::Word word, const void* body, std::uint32_t bytes);

  // tagged_inlet.cpp: the receiver's side of boards
  void take_in_shown(heddle_peer from, Source& source, const wire::TaggedMessage& message);
  void open_inlet(heddle_peer from, Source& source);
  bool tell_board(Inlet& inlet);
  // Tells a receive to its senders, if it is long, and to the trace.
  void tell_posted(Posted* posted);
  void show(Posted* posted);
  static Shown* unused_place(Inlet& inlet);
  bool take_back(Shown& shown);
  void begin_taken(Shown& shown);
  void arrived_taken(heddle_peer from, std::span<const std::byte> packet);
  bool advance_taken(Shown& shown);
  bool fetch_part(Shown& shown, std::size_t which);
  static void end_part(Shown& shown, std::size_t which, base::Status status);
  void end_taken(Shown& shown);
  void complete_all_taken(base::Status status);
  bool stop(Shown& shown, base::Status status);
  void report_incomplete(const Shown& shown);
  bool advance_all_taken();
  void report_fetches(engine::Findings& findings) const;
  void note_failed_inlets();

  // tagged_push.cpp: the sender's side
  void arrived_board(heddle_peer from, std::span<const std::byte> packet);
  bool take_shown(engine::Operation& operation, const wire::Offer& head, const SendRequest& request);
  bool advance_pushing();
  void tell_taken(Offered& offered);
  [[nodiscard]] bool may_push(const Offered& offered);
  bool reach(Offered& offered);
  bool copy_alone(heddle_peer peer, const transport::RemoteMemory& remote, transport::Opcode opcode, void* local,
                  wire::BoardPart part);
  bool push_part(Offered& offered);
  void leave_place(Offered& offered);
  void count_end(base::Status status);
  void end(const ReceiveRequest& request, base::Status status);
  void mark(const engine::OperationCounter* counter);
  void unmark(const engine::OperationCounter* counter);

  static constexpr std::size_t kPlaces = 64;

  engine::Core& core_;
  transport::TransportWorker& transport_;
  tap::Tracer* const tracer_;  // null: the job is not traced
  const bool ordered_;
  const std::uint32_t max_workers_;
  const std::uint64_t window_;
  const std::uint64_t eager_;      // longest message in one packet
  const std::uint64_t told_from_;  // receives of so many bytes are to be told when they are posted
  const bool shows_;               // receives on boards
  LazyArray<SendCredit> credits_;
  LazyArray<CopyCosts> copy_costs_;
  const bool eager_is_set_;
  LazyArray<Source> sources_;
  Matching matching_;
  std::unique_ptr<Offered[]> offered_;  // by operation; made with the first offer
  // The number of posted receives, by their counter's address. Written inside; release, so that a
  // thread that sees a receive gone sees its effects. Partner: names_counter().
  std::array<std::atomic<std::uint32_t>, kPlaces> named_{};
  Source* owed_ = nullptr;    // sources that credit must be told to, by Source::next
  Fetch* waiting_ = nullptr;  // in order
  Fetch* waiting_last_ = nullptr;
  Shown* taken_ = nullptr;      // by Shown::next
  Offered* pushing_ = nullptr;  // by Offered::next
  std::unique_ptr<Inlet> inlets_;
  std::unique_ptr<View> views_;
  Kept* claimed_ = nullptr;  // list by earlier, later
  Kept* spare_ = nullptr;    // small blocks for reuse, by later
  std::uint32_t spares_ = 0;
  // The last receive that was noted.
  struct NotedReceive {
    tap::TraceRepeat repeat;
    Wanted wanted{};
    std::uint64_t bytes = 0;
  };
  NotedReceive noted_;
};

}  // namespace heddle::protocol
