// Messages of a port on their way out.
//
// A message that lies in its command goes by value: UCX has copied it when its call returns.
// Another one, or one that UCX does not take by value, is copied into a packet, which waits in UCX,
// or for its connection. Messages after a packet that UCX still has go as packets too, so that they
// stay in order. Short messages to a busy peer are gathered. When they have arrived:
// network::Undelivered.
#pragma once

#include <cstdint>
#include <span>

#include "transport/network/gathering.hpp"
#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

class Outgoing {
 public:
  Outgoing(Port& port, Device& device);
  void make_room_for(std::size_t peers) { gathering_.make_room_for(peers); }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static as Transfers::put().
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // Sends short messages to one worker, from the front of the batch, together: UCX and the kernel
  // are called once. Returns how many. 0: there are no two, or it is better done one by one.
  [[nodiscard]] std::size_t post_bundle(std::span<Command> batch);

  // Tells the peer where the stream from it is. value: that leaves at once or not at all. packet:
  // UCX may keep it until it can leave. OK: it has left, or UCX has it. NO_RESOURCE: not now. Else
  // the connection is broken.
  enum class As : std::uint8_t { value, packet };
  ucs_status_t send_credit(PeerState& peer, As as);

  // By polls: gathered messages leave.
  void push_on() {
    if (!gathering_.empty()) [[unlikely]]
      gathering_.leave_all();
  }
  // Its connection is ready.
  void send_waiting(PeerState& peer);
  // It will never be ready.
  void drop_waiting(PeerState& peer);

  // UCX has packets or credits, or some are gathered.
  [[nodiscard]] bool in_flight() const { return flying_ != 0 || !gathering_.empty(); }

  // ---- see network::Gathering
  Packet* begin_bundle(PeerState& peer);
  // Afterwards UCX has the packet, or it is free again. False: the connection is broken.
  bool send(PeerState& peer, Packet* packet);

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kPackets = 48;

  static bool post_otherwise(Port& port, Command& command);
  static ucs_status_t send_by_value(Port& port, PeerState& peer, unsigned id, std::size_t bytes);
  void send_as_packet(PeerState& peer, const Command& command, std::uint32_t bytes);
  Packet* begin_packet(PeerState& peer, unsigned id, std::uint32_t immediate = 0);
  ucs_status_t hand_over(PeerState& peer, unsigned id, std::span<const std::byte> bytes, ucp_send_nbx_callback_t sent,
                         void* user);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_credit_sent(void* request, ucs_status_t status, void* user);

  Port& port_;
  Device& device_;
  const std::uint32_t window_;
  ucp_request_param_t by_value_{};  // of every message that goes by value
  Pool<Packet> packets_;
  network::Gathering<PeerState, Outgoing> gathering_;
  std::uint32_t flying_ = 0;
};

}  // namespace heddle::transport::ucx
