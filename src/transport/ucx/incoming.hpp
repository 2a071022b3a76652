// Messages of a port on their way in.
//
// A message that UCX delivers is handed out at once if a poll runs that has room for it and no
// message of its sender waits; else it is queued. If it is long and UCX allows it, its bytes stay
// in UCX's buffer, which the poll after the one that hands it out gives back; else they are copied
// into the ring of their sender, of a window's size. Each message has its place in the ring in
// either case, so the window also bounds what UCX has to keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;
struct Came;

class Incoming {
 public:
  Incoming(Port& port, Device& device);
  void make_room_for(std::size_t peers);
  // Before anything can arrive. SYSTEM.
  base::Status listen();

  // What the last poll has handed out is not used any more.
  void release_lent() {
    if (!lending_.empty()) release_all_lent();
  }
  // Hands out queued messages, as many as the running poll has room for. Senders take turns, so
  // that one that sends much does not keep the others waiting.
  void hand_out() {
    if (!queued_.empty()) [[unlikely]]
      hand_out_queued();
  }
  [[nodiscard]] bool empty() const { return queued_.empty() && lending_.empty(); }
  [[nodiscard]] bool has_queued() const { return !queued_.empty(); }
  // Nobody polls any more: all that is here is consumed.
  void drop_all();
  // From now on all that arrives is consumed at once.
  void close() { limit_ = 0; }
  // How many arrivals were invalid.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

 private:
  // Below this size a copy costs less than giving a buffer back, and many messages would hold more
  // of UCX's buffers than they have bytes.
  static constexpr std::uint32_t kLeastKept = 1024;

  struct Record;
  struct Arrival;
  using Receive = ucs_status_t(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                               const ucp_am_recv_param_t* param);
  static Receive on_message;
  static Receive on_other_message;
  static Receive on_bundle;
  static Receive on_credit;
  [[nodiscard]] PeerState* hear(const Came& came, std::size_t most, const char* what, Head* head);
  [[nodiscard]] bool take(PeerState& peer, std::uint32_t position, const Arrival& arrival);
  [[nodiscard]] ucs_status_t take_long(PeerState& peer, std::uint32_t position, Arrival arrival,
                                       const ucp_am_recv_param_t* param);
  [[nodiscard]] bool take_unread(PeerState& peer, std::uint32_t position, std::uint32_t cost);
  [[nodiscard]] bool take_bundle(PeerState& peer, std::uint32_t position, const std::byte* data, std::uint32_t bytes);
  [[nodiscard]] bool is_next(const PeerState& peer, std::uint32_t position, std::uint32_t cost) const;
  std::byte* make_place(PeerState& peer, std::uint32_t cost);
  static void hand_out(Port& port, PeerState& peer, const std::byte* place, std::uint32_t bytes,
                       std::uint32_t immediate);
  void queue(PeerState& peer, const std::byte* place);
  void lend(PeerState& peer, Record record, std::byte* place);
  const std::byte* lend_kept(std::byte* place, void* kept);
  void note_lent(PeerState& peer);
  bool open_ring(PeerState& peer);
  void malformed(const char* what, const char* why);
  void wrong(PeerState& peer, const char* what);
  void hand_out_queued();
  void hand_out_of(PeerState& peer);
  Record unqueue(PeerState& peer);
  void release_all_lent();
  void give_back(void* kept);

  Port& port_;
  Device& device_;
  const std::uint32_t window_;
  std::uint32_t limit_;              // of what may wait: a window; 0: nobody polls any more
  std::vector<PeerState*> queued_;   // with messages to hand out
  std::vector<PeerState*> lending_;  // with messages that the last poll has handed out
  std::byte* lent_kept_ = nullptr;   // list of the places of lent messages whose bytes UCX has
  std::uint64_t malformed_ = 0;
};

}  // namespace heddle::transport::ucx
