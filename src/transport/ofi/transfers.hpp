// Puts, gets and atomics of a port. Each has a slot until libfabric says that it is done: a put,
// that it is in the target's memory. Until then it also keeps the registration of the caller's
// memory, where the provider wants one.
//
// libfabric cannot be made to forget one transfer, and its adapter may execute it at any time, with
// nobody's help. So after the loss of a peer a put or atomic that does not end may be reported as
// failed while libfabric still has it (an orphan): it only reads the caller's memory, and writes to
// its slot. A get is reported when libfabric has let go of its destination, not before: it has
// reported the end itself, or its endpoint is closed.
#pragma once

#include <cstdint>

#include "transport/network/completions.hpp"
#include "transport/network/lists.hpp"
#include "transport/ofi/peer_state.hpp"

namespace heddle::transport::ofi {

class Port;

class Transfers {
 public:
  Transfers(Port& port, std::uint32_t slots);
  // With the port's endpoint. NO_MEMORY, SYSTEM.
  base::Status open(Endpoint& endpoint);

  // By the owner, outside a Turn. How many were accepted: 0 or 1.
  template <Opcode kOpcode>
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // An opcode that the transport does not have.
  [[nodiscard]] static std::size_t refuse(Port& port, Command& command);

  // Transfers that were not reported as done yet.
  [[nodiscard]] std::uint32_t under_way() const { return room_.taken() - orphans_; }
  // libfabric still has transfers that were reported as failed: it cannot be made to forget one.
  [[nodiscard]] bool has_orphans() const { return orphans_ != 0; }

  // Completes the first of these entries, a usual transfer's, and the usual ones behind it with the
  // same token. Returns the first entry that is left.
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* end) {
    const Token token = static_cast<const Transfer*>(Operation::of(entry->op_context))->token;
    std::uint32_t count = 0;
    Transfer* front = pool_.front();
    do {
      auto* transfer = static_cast<Transfer*>(Operation::of(entry->op_context));
      if (!transfer->usual_transfer || transfer->token != token) break;
      transfer->peer = nullptr;
      transfer->next = front;
      front = transfer;
      ++count;
    } while (++entry != end);
    pool_.set_front(front);
    room_.give(count);
    completions_.done(token, HEDDLE_DONE, count);
    return entry;
  }
  // libfabric has finished it, with FI_SUCCESS or a positive number.
  void on_finished(Transfer& transfer, int error);
  // Fails the puts and atomics of a peer state whose connection was lost long ago. libfabric keeps
  // the transfers that it has; nobody waits for them any more. True: gets are left.
  bool orphan(PeerState& peer);
  [[nodiscard]] bool holds_some(const PeerState& peer) const;
  // libfabric has let go of all transfers: fails those that were not reported.
  void forget();
  // It may still write to the slots (Endpoint::kept()).
  void keep() { pool_.keep(); }

 private:
  [[nodiscard]] base::Status check(const Command& command) const;
  static std::size_t post_otherwise(Port& port, Command& command);
  bool take_otherwise(Command& command);
  template <Opcode kOpcode>
  static bool start(Port& port, PeerState& peer, Command& command, std::uint64_t flags);
  bool update(PeerState& peer, Command& command);
  void begin(PeerState& peer, const Command& command, Transfer* transfer);
  bool not_started(PeerState& peer, Command& command, long answer);
  void do_duties(Transfer& transfer, int error);
  void give_back(Transfer* transfer) {
    room_.give(1);
    transfer->peer = nullptr;
    transfer->orphan = false;
    transfer->usual_transfer = true;
    pool_.give_back(transfer);
  }

  // The arguments of a put for libfabric. They are kept, since only a few fields differ between
  // puts.
  struct Put {
    iovec local{};
    fi_rma_iov remote{};
    void* descriptor = nullptr;
    fi_msg_rma message{};
  };

  Port& port_;
  network::Completions& completions_;
  CallersMemory* callers_ = nullptr;  // null: the provider wants none of it registered
  network::Room& room_;               // there are at least as many free slots
  network::Pool<Transfer> pool_;
  Put put_;
  const std::size_t inject_bytes_;
  void* descriptor_ = nullptr;  // of the slots, for atomics
  std::uint32_t orphans_ = 0;
};

}  // namespace heddle::transport::ofi
