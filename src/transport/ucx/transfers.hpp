// Puts, gets and atomics of a port.
//
// A put is done when a flush of its endpoint, begun after it, has ended: puts that were posted
// between two polls share one flush, and one slot if they have one token and their sources are
// free. A get is done when UCX says so, and so is an atomic, which always asks for the result.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/network/completions.hpp"
#include "transport/ucx/keys.hpp"
#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

class Transfers {
 public:
  Transfers(Port& port, Device& device, std::uint32_t slots);
  void make_room_for(std::size_t peers) { make_room(&dirty_, peers); }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static: all that the first two
  // use is at a fixed distance from the port.
  [[nodiscard]] static std::size_t put(Port& port, Command& command);
  [[nodiscard]] static std::size_t get(Port& port, Command& command);
  [[nodiscard]] static std::size_t post(Port& port, Command& command);

  // Transfers that were not reported as done yet.
  [[nodiscard]] std::uint32_t under_way() const { return room_.taken() - orphans_; }
  // UCX still has transfers that were reported as failed, since it cannot be made to forget them
  // (orphan()).
  [[nodiscard]] bool has_orphans() const { return orphans_ != 0; }
  [[nodiscard]] bool at_rest() const { return under_way() == 0 && dirty_.empty() && changing_.empty(); }

  // By polls, before UCX's progress: puts are flushed.
  void flush_dirty() {
    if (!dirty_.empty()) flush_all_dirty();
  }
  // After it: atomics whose word another process changed first are retried.
  void change_again() {
    if (!changing_.empty()) [[unlikely]]
      change_all_again();
  }
  // From time to time.
  void forget_releases() { keys_.forget_releases(under_way() + orphans_ != 0); }

  // Fails the transfers of a peer state whose connection is lost. UCX keeps the transfers that it
  // has; nobody waits for them any more.
  void orphan(PeerState& peer);
  // UCX still has a transfer or a flush of it.
  [[nodiscard]] bool holds_some(const PeerState& peer) const;
  // UCX has forgotten the operations of this peer state that have not ended: fails them.
  void abandon(PeerState& peer);
  // Its flush has ended, or it has none.
  void end_flush(PeerState& peer, base::Status status);
  // Disconnects each peer state that has something under way.
  void disconnect_all();
  // At the end.
  void destroy_keys() { keys_.destroy(); }

 private:
  // A put whose source is free, and that waits for a flush.
  static constexpr std::uint32_t kPutLeft = Transfer::active | Transfer::is_put | Transfer::local_done;

  static bool post_otherwise(Port& port, Command& command);
  [[nodiscard]] static const Key* usual(Port& port, const Command& command);
  [[nodiscard]] base::Status check(const Command& command) const;
  static bool put(Port& port, Command& command, const Key& key);
  static bool get(Port& port, Command& command, const Key& key);
  bool update(Command& command, const Key& key);
  static bool begin(Port& port, PeerState& peer, Command& command, void* request);
  bool not_started(Command& command, ucs_status_t status);
  void* begin_update(const Command& command, Transfer* transfer, const Key& key);
  void* fetch(Transfer* transfer, ucp_atomic_op_t op, std::uint64_t address, ucp_rkey_h key);
  void* change(Transfer* transfer);
  void change_all_again();
  static void take_result(Transfer& transfer) {
    if (transfer.local != nullptr) std::memcpy(transfer.local, &transfer.result, transfer.local_bytes);
  }
  // Another process has changed the word between our read and our change.
  static bool was_forestalled(const Transfer& transfer) {
    return std::memcmp(&transfer.result, &transfer.operand, transfer.local_bytes) != 0;
  }
  static void on_local(void* request, ucs_status_t status, void* user);
  static void on_flushed(void* request, ucs_status_t status, void* user);
  void flush_all_dirty();
  void flush(PeerState& peer);
  void end_puts(Transfer* put, base::Status status);
  void tell(const Transfer& transfer, base::Status status);
  void finish(Transfer* transfer);
  Transfer* take_slot();
  void give_slot(Transfer* transfer);

  Port& port_;
  Device& device_;
  network::Room& room_;  // there are at least as many free slots
  Pool<Transfer> pool_;
  ucp_request_param_t params_{};  // of every put and get, with the first free slot
  std::uint32_t orphans_ = 0;
  std::vector<PeerState*> dirty_;  // with puts that are not flushed
  List<Transfer> changing_;        // atomics to be retried
  Keys keys_;
};

}  // namespace heddle::transport::ucx
