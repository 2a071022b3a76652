// This transport's part of a worker: its queues, and its peer states.
//
// Two workers connect by four notes: each tells its queue pair and its mailbox, connects its pair
// when it has those of the other, and says so. A port that disconnects says that too, since no
// adapter tells the other end that a queue pair is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/network/port.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/mailboxes.hpp"
#include "transport/verbs/receiving.hpp"
#include "transport/verbs/sending.hpp"
#include "transport/verbs/stripes.hpp"

namespace heddle::transport::verbs {

class Port final : public network::Port {
 public:
  static base::Result<std::unique_ptr<Port>> create(Device& device, std::uint32_t index);
  ~Port() override;

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] const Adapter& adapter() const { return adapter_; }
  [[nodiscard]] Sending& sending() { return sending_; }
  [[nodiscard]] Stripes& stripes() { return stripes_; }

  // ---- the owner; see TransportWorker
  [[nodiscard]] std::size_t post(std::span<Command> batch) {
    const Turn turn(*this, std::try_to_lock);
    return turn.inside() ? sending_.post(batch) : 0;
  }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  [[nodiscard]] bool arm() { return receiving_.empty() && !has_mail() && network::Port::arm(); }
  [[nodiscard]] bool has_untaken() const { return receiving_.has_some(); }
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

  // ---- with the device's mutex
  struct Mail {
    std::uint32_t rank;
    Hello hello;
  };
  // It throws std::bad_alloc.
  void deliver(const Mail& mail);
  // Its adapter, or a queue of it, has failed: all peers are lost, and no more are connected.
  void note_failed();
  // The other adapter has failed: no more transfers are split.
  void note_other_failed();

  // ---- for the parts
  // The requests under way to the peer are lost. Called within progress: the pair is destroyed
  // afterwards.
  void note_lost(PeerState& peer, const char* why);
  // The same, because the peer has written something that no rank of ours would write.
  void note_malformed(PeerState& peer, const char* why);

 private:
  // Polls between two looks at the device. Only for speed: the helper answers notes if nobody
  // looks.
  static constexpr std::uint32_t kDevicePeriod = 64;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // while something connects

  Port(Device& device, std::uint32_t index);
  base::Status open();
  base::Status open_stripes();
  // AGAIN: not now. SYSTEM.
  base::Status connect_pairs(PeerState& peer);
  bool progress_sending();
  void end_stripes();
  void end_stripe(PeerState& peer);
  void do_more(std::uint32_t poll);
  void take_mail();
  // False: there is no memory, and it is kept.
  bool take(const Mail& mail);
  void take_hello(PeerState& peer, const Hello& hello);
  bool make_pair(PeerState& peer);
  ibv_qp* create_pair();
  void stop_pair(PeerState& peer);
  void destroy_pair(PeerState& peer);
  bool say(PeerState& peer, Hello::Kind kind);
  void begin_handshake(PeerState& peer);
  bool handshake_takes_too_long(PeerState& peer) const;
  void take_end(PeerState& peer, std::uint32_t kind);
  void owe(PeerState& peer, Hello::Kind note);
  void tell_owed();
  // Nothing is sent there any more: requests under way fail with PEER_FAILED.
  void disconnect(PeerState& peer);
  void note_all_lost();
  [[nodiscard]] bool is_failed() const { return failed_.load(std::memory_order_relaxed); }
  void go_on_disconnecting();

  // ---- Connections
  [[nodiscard]] std::unique_ptr<network::Peer> make_peer() override;
  void make_room_for(std::size_t peers) override;
  [[nodiscard]] bool open(network::Peer& peer, const network::Bytes& address) override;
  [[nodiscard]] bool go_on_with_handshake(network::Peer& peer) override;
  void on_end(network::Peer& peer) override;

  // ---- network::Port
  bool move_on() override;
  bool progress_library() override;
  [[nodiscard]] bool arm_library() override;
  [[nodiscard]] bool in_flight() const override;
  [[nodiscard]] bool transfers_under_way() const override;
  [[nodiscard]] bool disconnecting() const override { return !lost_.empty() || !untold_.empty(); }
  void disconnect_transfers() override;
  void disconnect_failed(network::Peer& peer) override { disconnect(state(peer)); }
  void ask_silent() override;
  void probe_if_silent(PeerState& peer);

  Device& device_;
  const Adapter& adapter_;
  Channel channel_;
  Mailboxes mailboxes_;
  Receiving receiving_;
  Sending sending_;
  Stripes stripes_;
  std::uint64_t malformed_ = 0;
  bool told_short_ = false;  // that there is no memory for a connection
  std::vector<PeerState*> lost_;
  std::vector<PeerState*> untold_;         // that must be told something: PeerState::owes
  std::atomic<bool> failed_{false};        // relaxed: set with the device's mutex
  std::atomic<bool> other_failed_{false};  // likewise; read once
  // Handshakes that have come: written and read with the device's mutex.
  std::vector<Mail> mail_;
  std::vector<Mail> taken_;
};

}  // namespace heddle::transport::verbs
