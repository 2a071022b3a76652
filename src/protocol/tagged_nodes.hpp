// The data that Tagged keeps, and the functions that its files need at the end of each receive. For
// these files only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "protocol/tagged.hpp"

namespace heddle::protocol {

// Lives in heddle_receive::library while the receive waits or is fetched, or while a message is
// claimed with it.
struct Tagged::Posted : PostedReceive {
  Posted(const Wanted& what, const ReceiveRequest& how, const Tagged* by)
      : PostedReceive{what, 0, {}}, request(how), owner(by) {}
  ReceiveRequest request;
  const Tagged* owner;
  Kept* claimed = nullptr;
};

// An unexpected message: this struct, then its payload, in one block of as many bytes as its charge
// says.
struct Tagged::Kept : KeptMessage {
  std::uint64_t length = 0;         // of the message
  std::uint64_t payload_bytes = 0;  // that are here
  std::uint32_t sequence = 0;
  bool offer = false;
  base::Status ended = HEDDLE_DONE;  // else: it will never be whole

  std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
  [[nodiscard]] heddle_peer from() const { return {rank_of(source), static_cast<std::uint32_t>(source)}; }
  wire::TaggedMessage message() { return {tag, length, {payload(), payload_bytes}, sequence, offer, !is_whole()}; }
  [[nodiscard]] bool is_whole() const { return offer || payload_bytes == length; }
};

// A long message on its way here.
struct Tagged::Fetch {
  wire::Offer offer{};
  engine::RemoteRegion remote;
  bool reached = false;  // `remote` is ready
  Tagged* tagged = nullptr;
  heddle_peer from{};
  ReceiveRequest request;
  std::uint64_t bytes = 0;
  base::Status outcome = HEDDLE_DONE;  // TRUNCATED, if all goes well otherwise
  // If the sender was asked for it (PipeIn): what is between the two is to come.
  std::uint64_t id = 0;
  std::uint64_t front = 0;
  std::uint64_t back = 0;
  Fetch* next = nullptr;
};

// A worker that sends to this one. Zeroed memory is a worker that never has.
struct Tagged::Source {
  ReceiveCredit credit;
  std::uint64_t expected;  // number of the next message
  Kept* stash;             // arrived before it, by number
  PipeIn* pipe;            // once it has sent a long message
  Source* next;            // in owed_
  bool owed;
};

// ---- pipes --------------------------------------------------------------------------------------

// A message on its way to its receiver, by the operation's place in the pool: one that was offered,
// or one that goes in parts.
struct Tagged::Offered {
  engine::LentMemory memory;  // of an offered one
  std::uint64_t tag = 0;
  bool in_parts = false;   // it was not offered
  bool in_burst = false;   // another has left just before it
  bool began = false;      // a part of it has left
  std::uint64_t pull = 0;  // the receiver's number of the fetch; 0: it has not asked for it
  // What is left to be sent in parts; null: it stands in no pipe.
  const std::byte* rest = nullptr;
  std::uint64_t rest_bytes = 0;
  engine::Operation* operation = nullptr;
  Offered* next = nullptr;  // in its pipe
};

// The sending end of a pipe: messages whose parts are to be sent to one worker, in this order.
struct Tagged::PipeOut {
  heddle_peer to{};
  Offered* first = nullptr;
  Offered* last = nullptr;
  bool listed = false;
  std::uint64_t polled = 0;  // polls of the worker when the last message began, plus 1
  PipeOut* next = nullptr;   // in sending_
  PipeOut* made_before = nullptr;

  // A message begins after so many polls. True: in a burst, messages without a poll between them.
  bool begin(std::uint64_t polls) { return std::exchange(polled, polls + 1) == polls + 1; }
};

// The receiving end: the message whose parts come now, and those that were asked for. Parts that
// belong to neither are of a message that has ended here.
struct Tagged::PipeIn {
  heddle_peer from{};
  // The message that comes in parts without having been offered. Parts go to the memory of
  // `request`, of which there is room for `room` bytes, or behind what `kept` has; if there is
  // neither, nobody wants them.
  std::uint64_t bytes = 0;  // of the message; 0: there is none
  std::uint64_t arrived = 0;
  std::uint64_t room = 0;
  Kept* kept = nullptr;
  ReceiveRequest request;
  // The fetch whose parts come.
  Fetch* pulled = nullptr;
  // All fetches, in the order of asking.
  Fetch* first = nullptr;
  Fetch* last = nullptr;
  Fetch* told = nullptr;    // the last one that the sender was told of
  std::uint64_t pulls = 0;  // so many so far
  bool moved = true;        // something has come since the last pass, or is now waited for
  std::uint32_t quiet = 0;  // passes since, without anything
  std::uint64_t since = 0;  // ns: the first look at the clock since, for offers; 0: not yet
  bool listed = false;
  PipeIn* next = nullptr;  // in receiving_
  PipeIn* made_before = nullptr;
};

inline Tagged::Posted& Tagged::posted_of(heddle_receive* receive) {
  return *std::launder(reinterpret_cast<Posted*>(receive->library));
}

inline Tagged::Posted* Tagged::match(std::uint64_t tag, heddle_peer from) {
  return static_cast<Posted*>(matching_.arrive(tag, source_of(from)));
}

inline void set_status(heddle_receive* receive, base::Status status) {
  // Release: a thread that sees the end sees the data. Partner: the acquire load in
  // heddle_recv_wait.
  base::show_release(&receive->status);
  std::atomic_ref(receive->status).store(status, std::memory_order_release);
}
inline void set_posted(heddle_receive* receive) {
  std::atomic_ref(receive->status).store(HEDDLE_POSTED, std::memory_order_release);
}

inline void tell(heddle_receive* receive, heddle_peer from, std::uint64_t tag, std::uint64_t bytes) {
  receive->source = from;
  receive->tag = tag;
  receive->bytes = bytes;
}

// ---- the end of a receive -----------------------------------------------------------------------

inline void Tagged::mark(const engine::OperationCounter* counter) {
  if (counter == nullptr) [[likely]]
    return;
  auto& named = named_[place_of(counter)];
  named.store(named.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

inline void Tagged::unmark(const engine::OperationCounter* counter) {
  if (counter == nullptr) [[likely]]
    return;
  auto& named = named_[place_of(counter)];
  named.store(named.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  if (core_.objects.retired()) [[unlikely]]
    core_.objects.reclaim();
}

inline void Tagged::count_end(base::Status status) {
  if (status == HEDDLE_DONE || status == HEDDLE_ERR_TRUNCATED) ++core_.stats.receives;
  if (status != HEDDLE_DONE) [[unlikely]]
    ++core_.stats.failed;
}

// When the status is set, the receive is the program's again, so values that are needed afterwards
// are copied before.
inline void Tagged::end(const ReceiveRequest& request, base::Status status) {
  count_end(status);
  const engine::CallersCompletion completion = request.completion;
  set_status(request.receive, status);
  completion.fire(status);
  unmark(completion.counter);
}

inline void Tagged::free_credit(Source& source, std::uint64_t charge) {
  if (!source.credit.free(charge, window_) || source.owed) [[likely]]
    return;
  if (!tell_credit(source)) owe(source);
}

// ---- data ---------------------------------------------------------------------------------------

// Copies, or begins to fetch (POSTED).
inline base::Status Tagged::deliver(const ReceiveRequest& request, heddle_peer from,
                                    const wire::TaggedMessage& message) {
  tell(request.receive, from, message.tag, message.bytes);
  if (message.offer) [[unlikely]]
    return fetch(request, from, message);
  if (message.begins) [[unlikely]]
    return take_parts(request, from, message);
  if (message.bytes == 8 && request.bytes >= 8) [[likely]] {
    std::memcpy(request.data, message.payload.data(), 8);
    return HEDDLE_DONE;
  }
  const std::uint64_t bytes = std::min(message.bytes, request.bytes);
  base::copy_data(request.data, message.payload.data(), bytes);
  return bytes == message.bytes ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED;
}

}  // namespace heddle::protocol
