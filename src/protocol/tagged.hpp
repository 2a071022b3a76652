// Tagged messages of a worker.
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
#include "protocol/way.hpp"
#include "transport/transport.hpp"
#include "wire/messages.hpp"

namespace heddle::protocol {

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
  bool in_parts = false;   // Tagged::send_parts()
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
// Where the transport maps memory, long messages go through a pipe: the sender copies parts of a
// message in while the receiver copies those before out. A message for whose whole length there is
// credit goes at once, and its first part is the message for the order of messages. One that was
// offered goes when its receiver asks for it. If the sender does nothing then, the receiver copies
// it by itself, from the back, until the two meet. Sender: tagged_pipe_out.cpp; receiver:
// tagged_pipe_in.cpp.
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
  // How messages to that worker go. Any thread.
  [[nodiscard]] const WayLimits& limits(heddle_peer target) const {
    return pipes_ && core_.job.transport().direct_to(target.rank) ? piped_limits_ : limits_;
  }
  // The longest message that travels in one packet, whatever else its way could be.
  [[nodiscard]] std::uint64_t eager() const { return limits_.eager; }
  // The longest message that goes in one packet, whoever it is for.
  [[nodiscard]] std::uint64_t at_once() const { return piped_limits_.eager; }
  // AGAIN, or why there never will be room. Inside.
  base::Status no_room(heddle_peer target);
  // The command of a message that goes whole. Credit is reserved. Any thread.
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
  // Posts a message that goes whole: post(command), with its number where the transport
  // does not keep the order.
  template <class Post>
  base::Status post_numbered(transport::Command& command, Post&& post) {
    SendCredit& to = credit({command.rank, command.worker});
    if (!ordered_) [[unlikely]]
      command.immediate = wire::encode_tagged(static_cast<std::uint32_t>(to.sequence), false);
    const base::Status status = post();
    if (status == HEDDLE_DONE || status == HEDDLE_POSTED) ++to.sequence;
    return status;
  }
  // Sends a message of more than at_once() bytes in parts. Its room is reserved. AGAIN: not now.
  base::Status send_parts(const SendRequest& request, const engine::CallersCompletion& completion);
  // Offers it instead, where send_parts() has said AGAIN: then its room is given back. AGAIN: not
  // now; it keeps its room.
  base::Status offer_instead(const SendRequest& request, const engine::CallersCompletion& completion);
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
  struct PipeOut;
  struct PipeIn;

  static constexpr std::uint64_t kOfferCharge = wire::tagged_charge(sizeof(wire::Offer));
  // Copied messages have one window; offers may also use a second one. So a sender that has filled
  // the window may still offer, and two workers that both send before they receive do not wait for
  // each other.
  static constexpr std::uint64_t kOfferWindows = 2;

  [[nodiscard]] std::size_t pair(heddle_peer peer) const { return std::size_t{peer.rank} * max_workers_ + peer.worker; }
  SendCredit& credit(heddle_peer target) { return credits_[pair(target)]; }
  [[nodiscard]] std::uint32_t number(const SendCredit& to) const {
    return ordered_ ? 0 : static_cast<std::uint32_t>(to.sequence);
  }
  static std::size_t place_of(const engine::OperationCounter* counter) {
    return (reinterpret_cast<std::uintptr_t>(counter) >> 6) % kPlaces;
  }

  bool make_offered();
  static base::Status no_memory();
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
  [[gnu::noinline]] void note_receive(const Posted& posted);
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
  bool may_pull(Fetch& fetch);
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

  // tagged_pipe_out.cpp: the sending end of a pipe
  PipeOut* pipe_to(heddle_peer target);
  void note_offered(engine::Operation& operation, const SendRequest& request);
  void append(PipeOut& pipe, Offered& offered);
  std::uint64_t post_parts(Offered& offered, heddle_peer target, std::uint64_t most);
  std::uint64_t post_part(Offered& offered, heddle_peer target);
  void arrived_pull(heddle_peer from, std::span<const std::byte> packet);
  bool advance_sending();
  bool feed(PipeOut& pipe);
  void leave_pipe(Offered& offered);

  // tagged_pipe_in.cpp: the receiving end
  PipeIn* pipe_from(heddle_peer from);
  void list(PipeIn& pipe);
  void arrived_piped(heddle_peer from, std::span<const std::byte> packet);
  void arrived_part(heddle_peer from, std::span<const std::byte> packet);
  base::Status take_parts(const ReceiveRequest& request, heddle_peer from, const wire::TaggedMessage& message);
  void end_parts(PipeIn& pipe, base::Status status);
  void end_current(PipeIn& pipe);
  base::Status pull(Fetch* fetch);
  bool tell_pulls(PipeIn& pipe);
  void arrived_pulled(heddle_peer from, std::span<const std::byte> packet);
  void take_pulled(PipeIn& pipe, std::span<const std::byte> data);
  void end_pull(PipeIn& pipe, Fetch& fetch, base::Status status);
  bool copy_back(PipeIn& pipe, Fetch& fetch);
  bool copied_alone(const Fetch& fetch, std::uint64_t at, std::uint64_t bytes);
  bool advance_receiving();
  void unlist(PipeIn& pipe);
  [[nodiscard]] static bool is_quiet(PipeIn& pipe);
  bool advance_pulls(PipeIn& pipe, bool* copied);
  bool has_ended(const PipeIn& pipe);
  void end_pipes_of_failed();
  void end_pipes(base::Status status);
  void end_pipe(PipeIn& pipe, base::Status status);
  void report_fetches(engine::Findings& findings) const;

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
  const WayLimits limits_;        // where there is no pipe
  const WayLimits piped_limits_;  // to peers whose memory is mapped, if pipes_
  const bool pipes_;              // long messages go through pipes
  LazyArray<SendCredit> credits_;
  LazyArray<Source> sources_;
  Matching matching_;
  std::unique_ptr<Offered[]> offered_;  // by operation; made with the first offer
  // The number of posted receives, by their counter's address. Written inside; release, so that a
  // thread that sees a receive gone sees its effects. Partner: names_counter().
  std::array<std::atomic<std::uint32_t>, kPlaces> named_{};
  Source* owed_ = nullptr;    // sources that credit must be told to, by Source::next
  Fetch* waiting_ = nullptr;  // in order
  Fetch* waiting_last_ = nullptr;
  PipeOut* sending_ = nullptr;   // those with something to send, by PipeOut::next
  PipeIn* receiving_ = nullptr;  // those that something is to come from, by PipeIn::next
  PipeOut* last_out_ = nullptr;  // all of them, by made_before
  PipeIn* last_in_ = nullptr;
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
