// What Tagged keeps: for its own files only.
#pragma once

#include <atomic>
#include <new>

#include "engine/tagged.hpp"

namespace heddle::engine {

// Lives in heddle_receive::library while the receive waits or is fetched, or while a message is claimed with it.
struct Tagged::Posted : protocol::PostedReceive {
  Posted(const protocol::Wanted& what, const ReceiveRequest& how, const Tagged* by) : request(how), owner(by) {
    wanted = what;
  }
  ReceiveRequest request;
  const Tagged* owner;
  Kept* claimed = nullptr;
};

// A message that nobody has received yet: this, then its payload. One block of as many bytes as its charge says.
struct Tagged::Kept : protocol::KeptMessage {
  std::uint64_t length = 0;  // of the message
  std::uint32_t payload_bytes = 0;
  std::uint32_t sequence = 0;
  bool offer = false;

  std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
  [[nodiscard]] heddle_peer from() const { return {protocol::rank_of(source), static_cast<std::uint32_t>(source)}; }
  wire::Tagged message() { return {tag, length, {payload(), payload_bytes}, sequence, offer}; }
};

// A long message on its way here.
struct Tagged::Fetch {
  RemoteRegion remote;
  Tagged* tagged = nullptr;
  heddle_peer from{};
  std::uint64_t token = 0;
  ReceiveRequest request;
  std::uint64_t bytes = 0;
  base::Status outcome = HEDDLE_DONE;  // TRUNCATED, if all goes well otherwise
  Fetch* next = nullptr;
};

// A worker that sends to us. Zeroed memory is one that never has.
struct Tagged::Source {
  protocol::ReceiveCredit credit;
  std::uint64_t expected;  // number of the next message
  Kept* stash;             // arrived before it, by number
  Source* next;            // in owed_
  bool owed;
};

struct Tagged::Offered {
  LentMemory memory;
};

inline Tagged::Posted& Tagged::posted_of(heddle_receive* receive) {
  return *std::launder(reinterpret_cast<Posted*>(receive->library));
}

inline void set_status(heddle_receive* receive, base::Status status) {
  // Release: who sees the end sees the data. Partner: the acquire load in heddle_recv_wait.
  std::atomic_ref(receive->status).store(status, std::memory_order_release);
}

inline void tell(heddle_receive* receive, heddle_peer from, std::uint64_t tag, std::uint64_t bytes) {
  receive->source = from;
  receive->tag = tag;
  receive->bytes = bytes;
}

}  // namespace heddle::engine
