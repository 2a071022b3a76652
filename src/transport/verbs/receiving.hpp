// Messages of a port on their way in. The senders' adapters write them into the mailboxes; each
// takes an entry of the shared receive queue, and brings a completion with its length and the
// sender's 32 bits. They are handed out where they lie, as many as a poll has room for; the others
// wait in the completion queue.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/network/completions.hpp"
#include "transport/verbs/peer_state.hpp"
#include "transport/verbs/queue.hpp"

namespace heddle::transport::verbs {

class Port;

class Receiving {
 public:
  explicit Receiving(Port& port);
  ~Receiving() { close(); }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  // SYSTEM.
  base::Status open(const Channel& channel);
  void close();
  void make_room_for(std::size_t peers);
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  [[nodiscard]] ibv_srq* shared() const { return shared_; }
  void arm() const { queue_.arm(); }

  // A pair has been made for the peer, or is going to be destroyed: drivers may forget the
  // completions of such a pair, so all that have come are read first.
  void enter(PeerState& peer);
  void leave(const PeerState& peer);

  // By the owner's polls, in this order: the messages that the last poll has handed out are not
  // used any more; hands out the next ones.
  void release_lent() {
    if (!lending_.empty()) release_all_lent();
  }
  void hand_out();
  // Nobody polls any more: consumes all messages that are here.
  void drop_all();
  // Looks whether anything is there. True: something new.
  bool look();
  [[nodiscard]] bool has_some() const { return begin_ != end_; }
  [[nodiscard]] bool empty() const { return !has_some() && more_.empty() && lending_.empty() && owing_.empty(); }
  // Peers are told of credit that they could not be told of before.
  void send_owed();
  [[nodiscard]] bool owes() const { return !owing_.empty(); }

 private:
  static constexpr std::uint32_t kEntries = 1024;  // messages that may wait
  static constexpr std::uint32_t kRefill = 64;

  [[nodiscard]] std::size_t slot_of(std::size_t number) const { return number & (by_pair_.size() - 1); }
  [[nodiscard]] PeerState* find(std::uint32_t pair) const;
  void refill();
  void read_all();
  PeerState* arrived(const ibv_wc& entry, std::byte** data, std::uint32_t* end);
  void wrong(PeerState& peer, const ibv_wc& entry);
  void release_all_lent();
  void owe(PeerState& peer);

  Port& port_;
  const std::uint32_t window_;
  CompletionQueue queue_;
  ibv_srq* shared_ = nullptr;
  std::uint32_t missing_ = 0;  // entries that were taken from it
  std::array<ibv_recv_wr, kRefill> entries_;
  // By number of the pair: open addressing, at most half full, a power of two.
  std::vector<PeerState*> by_pair_;
  // Completions that were read, and not handed out.
  std::array<ibv_wc, 16> read_;
  std::vector<ibv_wc> more_;  // that leave() has read, behind those; it has room for all entries
  ibv_wc* begin_ = nullptr;
  ibv_wc* end_ = nullptr;
  std::vector<PeerState*> lending_;  // with messages that the last poll has handed out
  std::vector<PeerState*> owing_;
};

}  // namespace heddle::transport::verbs
