// Messages of a port on their way in.
//
// What UCX brings is handed out at once where a poll runs that has room for it and nothing of its
// sender waits; else it is queued. Its bytes stay where they are if UCX lets us have them and they
// are many, and are given back after the poll that follows their handing out; else they are copied
// into the ring of their sender, of a window's size. Each message has its place there in either
// case, so what UCX has to keep is bounded by the window too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

class Incoming {
 public:
  Incoming(Port& port, Device& device);
  void make_room_for(std::size_t peers);
  // Before anything can come. SYSTEM.
  base::Status listen();

  // What the last poll has handed out is not used any more.
  void release_lent() {
    if (!lending_.empty()) release_all_lent();
  }
  // What was queued, in turns, so that nobody who sends much keeps the others waiting: as much as
  // the running poll has room for.
  void hand_out() {
    if (!queued_.empty()) [[unlikely]]
      hand_out_queued();
  }
  [[nodiscard]] bool empty() const { return queued_.empty() && lending_.empty(); }
  // Nobody polls any more: all that is here is consumed.
  void drop_all();
  // What the transport has refused.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

 private:
  // Below this a copy costs less than giving back, and many of them would hold more of UCX's
  // buffers than they have bytes.
  static constexpr std::uint32_t kLeastKept = 1024;

  struct Record;
  struct Arrival;
  using Receive = ucs_status_t(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                               const ucp_am_recv_param_t* param);
  static Receive on_message;
  static Receive on_bundle;
  static Receive on_credit;
  [[nodiscard]] PeerState* hear(const Head& head, const char* nobody, const char* wrong);
  [[nodiscard]] bool take(PeerState& peer, const Head& head, const Arrival& arrival);
  [[nodiscard]] bool take_bundle(PeerState& peer, const Head& head, const std::byte* data, std::uint32_t bytes);
  void put_into_ring(PeerState& peer, std::byte* place, const Record& record);
  void lend(PeerState& peer, std::byte* place, const Record& record, Completion* to);
  const std::byte* lend_kept(std::byte* place, void* kept);
  void note_lent(PeerState& peer);
  bool open_ring(PeerState& peer);
  void malformed(const char* what);
  void wrong(PeerState& peer, const char* what);
  void hand_out_queued();
  void hand_out_of(PeerState& peer);
  void release_all_lent();
  void give_back(void* kept);

  Port& port_;
  Device& device_;
  const std::uint32_t window_;
  std::vector<PeerState*> queued_;   // with messages to hand out
  std::vector<PeerState*> lending_;  // with messages that the last poll has handed out
  std::byte* lent_kept_ = nullptr;   // the places of those among them whose bytes UCX has: a list
  std::uint64_t malformed_ = 0;
};

}  // namespace heddle::transport::ucx
