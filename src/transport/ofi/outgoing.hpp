// Messages of a port on their way out.
//
// A message that lies in its command goes by value: libfabric has copied it when its call returns.
// Another one is copied into a packet, which libfabric reads until its completion. While libfabric
// takes nothing for a peer, because it connects or has no room, packets wait; messages after them
// wait too, so that they stay in order. Short messages to a busy peer are gathered. A message is
// complete when its receiver tells that it has arrived.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/network/gathering.hpp"
#include "transport/network/lists.hpp"
#include "transport/ofi/peer_state.hpp"

namespace heddle::transport::ofi {

class Port;

class Outgoing {
 public:
  explicit Outgoing(Port& port);
  // With the port's endpoint: see Endpoint::add_buffers().
  base::Status open(Endpoint& endpoint) {
    return endpoint.add_buffers(packets_.all().data(), packets_.all().size_bytes(), &descriptor_);
  }
  void make_room_for(std::size_t peers) {
    network::make_room(&stuck_, peers);
    gathering_.make_room_for(peers);
  }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static, so that all that it uses
  // is at a fixed distance from the port.
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // Sends short messages to one worker, from the front of the batch, together. Returns how many. 0:
  // there are no two, or it is better done one by one.
  [[nodiscard]] std::size_t post_bundle(std::span<Command> batch);

  // Sends a head without a packet, which tells the peer where the stream from it is: a credit or a
  // question. False: not now.
  [[nodiscard]] bool send_word(PeerState& peer, network::Kind kind);
  // Tells the peer, which may be broken, that nothing is taken from it any more; if libfabric takes
  // that at once.
  void send_end(PeerState& peer);

  // Its connection is ready: waiting messages leave.
  void begin(PeerState& peer);
  // By polls: waiting messages leave, if libfabric takes them.
  void push_on() {
    if (!stuck_.empty() || !gathering_.empty()) [[unlikely]]
      push_all();
  }
  // It will never be ready, or is not any more.
  void drop_waiting(PeerState& peer);
  // libfabric has finished it, with FI_SUCCESS or a positive number.
  void on_finished(Packet& packet, int error);
  // The endpoint is closed: no completion of a packet comes any more.
  void forget() { flying_ = 0; }
  // libfabric may still write to the packets (Endpoint::kept()).
  void keep() { packets_.keep(); }

  // Packets that libfabric has not finished.
  [[nodiscard]] bool flies() const { return flying_ != 0; }
  // The same, or packets that wait for a peer that is ready.
  [[nodiscard]] bool in_flight() const { return flying_ != 0 || !stuck_.empty() || !gathering_.empty(); }

  // ---- see network::Gathering
  Packet* begin_bundle(PeerState& peer);
  // Afterwards libfabric has it, or it waits.
  void send(PeerState& peer, Packet* packet);

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kPackets = 48;

  static bool post_otherwise(Port& port, Command& command);
  static bool send_by_value(Port& port, PeerState& peer, std::size_t bytes);
  Packet* begin_packet(PeerState& peer, network::Kind kind, std::uint32_t immediate = 0);
  long hand_over(PeerState& peer, Packet* packet);
  void wait(PeerState& peer, Packet* packet);
  void push_all();
  bool push(PeerState& peer);

  Port& port_;
  const std::uint32_t window_;
  const std::size_t inject_bytes_;
  network::Pool<Packet> packets_;
  void* descriptor_ = nullptr;     // of the packets
  std::vector<PeerState*> stuck_;  // ready, with packets that wait
  network::Gathering<PeerState, Outgoing> gathering_;
  std::uint32_t flying_ = 0;
};

}  // namespace heddle::transport::ofi
