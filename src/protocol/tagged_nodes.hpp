// The data that Tagged keeps, and the functions that its files need at the end of each receive. For
// these files only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

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
  Shown* shown = nullptr;  // it stands on a board
};

// An unexpected message: this struct, then its payload, in one block of as many bytes as its charge
// says.
struct Tagged::Kept : KeptMessage {
  std::uint64_t length = 0;  // of the message
  std::uint32_t payload_bytes = 0;
  std::uint32_t sequence = 0;
  bool offer = false;

  std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
  [[nodiscard]] heddle_peer from() const { return {rank_of(source), static_cast<std::uint32_t>(source)}; }
  wire::TaggedMessage message() { return {tag, length, {payload(), payload_bytes}, sequence, offer}; }
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
  Fetch* next = nullptr;
};

// A worker that sends to this one. Zeroed memory is a worker that never has.
struct Tagged::Source {
  ReceiveCredit credit;
  std::uint64_t expected;  // number of the next message
  Kept* stash;             // arrived before it, by number
  Inlet* inlet;            // once it has sent a long message
  Source* next;            // in owed_
  bool owed;
  bool no_inlet;  // there was no memory for one
};

// ---- receives that are shown to their sender (wire/board.hpp) -----------------------------------

// One place of a board, as its owner, the receiver, knows it.
struct Tagged::Shown {
  enum class Use : std::uint8_t {
    unused,
    shown,  // `posted` is in the matching
    taken,  // it is copied; `request` is what is left of the receive
    ended   // the sender may still look at the place
  };
  // A get by which this side fetches a part.
  struct Fetching {
    Shown* shown = nullptr;
    wire::BoardPart part;
    bool claimed = false;
    bool posted = false;
  };
  static constexpr std::uint32_t kAtOnce = 2;  // so that the transport always has something to do

  Use use = Use::unused;
  bool dead = false;  // the sender has failed
  std::uint32_t index = 0;
  std::uint64_t generation = 0;
  Inlet* inlet = nullptr;
  Tagged* tagged = nullptr;
  Posted* posted = nullptr;
  transport::LocalMemory lent;  // the buffer
  ReceiveRequest request;
  wire::Offer offer{};
  engine::RemoteRegion from;
  bool imported = false;
  std::uint64_t total = 0;
  base::Status outcome = HEDDLE_DONE;  // TRUNCATED, if all goes well otherwise
  std::array<Fetching, kAtOnce> fetching;
  Shown* next = nullptr;  // in taken_
};

// A board of this worker, for one sending worker.
struct Tagged::Inlet {
  heddle_peer from{};
  wire::Board* board = nullptr;
  wire::BoardName name{};
  bool told = false;        // the sender knows it
  std::uint32_t vain = 0;   // receives in a row that were shown for nothing
  std::uint32_t skip = 0;   // so many receives are not shown
  std::uint64_t count = 0;  // shown so far
  std::array<Shown, wire::kBoardPlaces> places;
  std::unique_ptr<Inlet> next;
};

// A board of a peer, on which it shows its receives to this worker.
struct Tagged::View {
  enum class Alone : std::uint8_t { untried, possible, impossible };
  heddle_peer to{};
  wire::Board* board = nullptr;
  transport::RemoteMemory memory;
  Alone alone = Alone::untried;  // whether we can write to its memory while it makes no progress
  std::unique_ptr<View> next;
};

// A message whose source is lent to its receiver, by the operation's place in the pool.
struct Tagged::Offered {
  engine::LentMemory memory;
  std::uint64_t tag = 0;  // for reports
  // If it has taken a place of a board:
  View* view = nullptr;
  wire::BoardPlace* place = nullptr;
  std::uint64_t word = 0;   // of the place
  std::uint64_t total = 0;  // bytes to be copied
  std::uint64_t index = 0;  // of the place
  std::uint64_t since = 0;  // ns
  std::uint64_t failing_since = 0;
  bool told = false;   // the receiver knows that it was taken
  bool began = false;  // we have copied parts
  bool imported = false;
  wire::BoardPart left;  // claimed, but the transport did not take it
  transport::RemoteMemory room;
  engine::Operation* operation = nullptr;
  Offered* next = nullptr;  // in pushing_
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
  if (message.bytes == 8 && request.bytes >= 8) [[likely]] {
    std::memcpy(request.data, message.payload.data(), 8);
    return HEDDLE_DONE;
  }
  const std::uint64_t bytes = std::min(message.bytes, request.bytes);
  base::copy_data(request.data, message.payload.data(), bytes);
  return bytes == message.bytes ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED;
}

}  // namespace heddle::protocol
