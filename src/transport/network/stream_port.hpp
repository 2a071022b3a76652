// A port whose messages are streams between two workers, with windows of credit. It is for
// libraries that deliver messages in their order, but do not tell when they have arrived, nor how
// many may wait at the receiver.
#pragma once

#include "transport/network/credits.hpp"
#include "transport/network/incoming.hpp"
#include "transport/network/port.hpp"
#include "transport/network/undelivered.hpp"

namespace heddle::transport::network {

class StreamPort : public Port {
 public:
  // For the parts: the objects that they share.
  [[nodiscard]] Credits& credits() { return credits_; }
  [[nodiscard]] Undelivered& undelivered() { return undelivered_; }
  [[nodiscard]] Incoming& incoming() { return incoming_; }

  // Tells the peer where the stream from it is, with a message of its own. Only if it is ready.
  // False: not now; nothing happened, and it is called again in a later poll.
  [[nodiscard]] virtual bool send_credit(StreamPeer& peer) = 0;
  // The stream has a gap, and no message behind the gap can be accepted. A lost connection is
  // better than a silent one: if the library watches connections, the other end is told of the
  // loss. Called within the library's progress.
  void disconnect_gap(StreamPeer& peer);
  // Gives a buffer of the library back, in which a message has arrived (Incoming::Arrival::keep).
  virtual void give_back(void* kept) = 0;

  void begin_stream(Peer& peer) final;
  void end_messages(Peer& peer, base::Status status) final {
    undelivered_.end_all(static_cast<StreamPeer&>(peer), status);
  }
  [[nodiscard]] bool all_arrived() const final;

  // ---- any thread
  // Messages have come that its owner has not taken.
  [[nodiscard]] bool has_untaken() const { return incoming_.has_queued(); }
  // Arrivals that were invalid.
  [[nodiscard]] std::uint64_t malformed() const { return incoming_.malformed(); }

 protected:
  StreamPort(Device& device, std::uint32_t index, std::uint32_t slots);

  // The connection is lost. Called within the library's progress: so it is only noted, and ended by
  // a later step.
  virtual void note_lost(StreamPeer& peer) = 0;
  // A transport's own calls this too.
  void make_room_for(std::size_t peers) override;
  // The peer has told nothing for long of messages that were sent, or its connection may be gone:
  // asks it for a credit. When that arrives, the transport clears StreamPeer::unanswered. For a
  // library that may lose messages, or credits, and not tell: others need no question. later: the
  // question has not left, and this is called again.
  enum class Asked : std::uint8_t { needless, asked, later };
  virtual Asked ask(StreamPeer& peer) {
    static_cast<void>(peer);
    return Asked::needless;
  }
  // Nobody else notices that a connection with nothing under way is cut: a peer that has told
  // nothing since the last round is asked, whether it had to or not.
  [[nodiscard]] virtual bool asks_idle() const { return false; }

 private:
  void tell_all() final {
    if (credits_.has_to_tell()) credits_.tell_all();
  }
  [[nodiscard]] bool owes() const final { return credits_.owes(); }
  [[nodiscard]] bool messages_at_rest() const final { return undelivered_.count() == 0 && incoming_.empty(); }
  void stop_taking() final { incoming_.close(); }
  bool drop_arrivals() final;
  void ask_silent() final;

  Credits credits_;
  Undelivered undelivered_;
  Incoming incoming_;
};

}  // namespace heddle::transport::network
