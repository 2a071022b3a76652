// A transport's part of a worker, as far as transports share it: its completions, and the Port.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>

#include "queue/handover.hpp"
#include "transport/common/rejections.hpp"
#include "transport/network/peers.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// How many commands of one kind may still be accepted. None while too many completions are kept.
class Room {
 public:
  explicit Room(std::uint32_t slots) : slots_(static_cast<std::int32_t>(slots)), left_(slots_) {}
  [[nodiscard]] bool has(std::uint32_t count) const { return left_ >= static_cast<std::int32_t>(count); }
  void take() { --left_; }
  void give(std::uint32_t count) { left_ += static_cast<std::int32_t>(count); }
  [[nodiscard]] std::uint32_t taken() const { return static_cast<std::uint32_t>(slots_ - left_ - (shut_ ? kShut : 0)); }
  void shut(bool shut) {
    left_ += (shut_ ? kShut : 0) - (shut ? kShut : 0);
    shut_ = shut;
  }

 private:
  static constexpr std::int32_t kShut = 1 << 30;  // more than any room
  const std::int32_t slots_;
  std::int32_t left_;  // less than none: shut
  bool shut_ = false;
};

// The completions of a port: written to the records of the running poll, or kept for the next one.
//
// The kept completions cannot overflow: there is room for those of all commands under way, and for
// kRejections more. While more than kRejections are kept, no command is accepted.
class Completions {
 public:
  // `slots`: transfers, and as many messages.
  explicit Completions(std::uint32_t slots)
      : transfers_(slots), messages_(slots), kept_(kRejections, kRejections + 3 * std::size_t{slots}) {}

  [[nodiscard]] Room& transfers() { return transfers_; }
  [[nodiscard]] Room& messages() { return messages_; }
  [[nodiscard]] const Room& transfers() const { return transfers_; }
  [[nodiscard]] const Room& messages() const { return messages_; }

  // A poll begins: the kept completions come first.
  void begin(std::span<Completion> out) {
    begin_ = out_ = out.data();
    end_ = out_ + out.size();
    if (!kept_.empty()) [[unlikely]]
      out_ += drain(out);
  }
  // How many there are so far.
  [[nodiscard]] std::size_t written() const { return static_cast<std::size_t>(out_ - begin_); }
  // The poll ends, or there is none: later completions are kept. Returns how many there were.
  // `moved`: something has moved. If no completion tells that, a completion of no command does, so
  // that a waiting thread goes on looking.
  std::size_t end(bool moved = false) {
    if (moved && out_ == begin_ && has_room()) [[unlikely]]
      write(out_++, {Event::done, HEDDLE_DONE, 0});
    const std::size_t count = written();
    begin_ = end_ = out_;  // no room any more, and nothing to count with
    return count;
  }

  // Reports the end of `count` commands with one token. Commands whose end nobody asked for have
  // one token for all, so that one record often reports many.
  void done(Token token, base::Status status, std::uint32_t count) {
    if (out_ != begin_ && out_[-1].token == token && out_[-1].status == status) {
      Completion& last = out_[-1];
      if (last.event == Event::several) {
        last.bytes += count;
        return;
      }
      if (last.event == Event::done) {
        last.event = Event::several;
        last.bytes = 1 + count;
        return;
      }
    }
    if (out_ == end_) [[unlikely]]
      return keep(token, status, Event::done, count);
    Completion* to = out_++;
    write(to, {count == 1 ? Event::done : Event::several, status, token});
    if (count != 1) to->bytes = count;
  }
  void source_free(Token token) {
    if (out_ == end_) [[unlikely]]
      return keep(token, HEDDLE_DONE, Event::source_free, 1);
    write(out_++, {Event::source_free, HEDDLE_DONE, token});
  }
  // The record for a message; only if has_room().
  [[nodiscard]] Completion* slot() { return out_++; }
  [[nodiscard]] bool has_room() const { return out_ != end_; }

  [[nodiscard]] bool empty() const { return kept_.empty(); }
  // Nobody polls any more: drops the kept completions.
  void forget() {
    for (std::array<Completion, 16> nobody; !kept_.empty();) static_cast<void>(drain(nobody));
  }

  // Outside a poll. Accepts a command that fails: its completion comes from the next poll. False:
  // not accepted.
  [[gnu::cold]] bool reject(Command& command, base::Status status) {
    const bool accepted = kept_.reject(command, status);
    weigh();
    return accepted;
  }

 private:
  static constexpr std::size_t kRejections = 256;
  static constexpr std::size_t kFront = offsetof(Completion, data);

  // These completions have only the fields of the front, which is one store of a vector.
  static void write(Completion* to, const Completion& told) {
    std::memcpy(static_cast<void*>(to), static_cast<const void*>(&told), kFront);
  }
  [[gnu::noinline]] void keep(Token token, base::Status status, Event event, std::uint32_t count) {
    for (; count != 0; --count) kept_.put(token, status, event);
    weigh();
  }
  [[gnu::noinline]] std::size_t drain(std::span<Completion> out) {
    const std::size_t drained = kept_.drain(out);
    weigh();
    return drained;
  }
  void weigh() {
    transfers_.shut(kept_.full());
    messages_.shut(kept_.full());
  }

  Room transfers_;
  Room messages_;
  Completion* begin_ = nullptr;
  Completion* out_ = nullptr;
  Completion* end_ = nullptr;
  Backlog kept_;
};

class Device;

// A transport's part of a worker, as far as transports share it: who uses it when, its peer states,
// its completions. It outlives the TransportWorker: accepted messages leave although nobody polls
// for this worker any more, and peers that do not know of its end may still write to it. One thread
// at a time uses it: its owner, within a Turn; the helper, by serve(), while the owner is
// elsewhere; the device, once it is retired.
class Port : public Connections {
 public:
  virtual ~Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // For the parts: the objects that they share.
  [[nodiscard]] Completions& completions() { return completions_; }
  [[nodiscard]] Peers& peers() { return peers_; }
  [[nodiscard]] const Peers& peers() const { return peers_; }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint64_t now_ns() const;
  // Its owner has closed it, or closes it now: after that the caller's memory is not used any more.
  [[nodiscard]] bool closed() const { return closed_; }
  void connect(Peer& peer) final { peers_.connect(peer); }
  // By Peers, see StreamPort. A peer state that was made; its rank and worker are set.
  virtual void begin_stream(Peer& peer) { static_cast<void>(peer); }
  // All that was sent there and may not have arrived ends with that status.
  virtual void end_messages(Peer& peer, base::Status status) {
    static_cast<void>(peer);
    static_cast<void>(status);
  }
  // The connection to that worker is lost: logs it, quietly if its rank is known to have failed.
  void log_lost(const Peer& peer, const char* why) const;
  // The library keeps something whose progress its descriptor does not report; or the device has a
  // question to send.
  void leaves_something();
  // Connections wait for an answer to the device. Relaxed: a thread that misses it looks again.
  void set_waits_for_device(bool waits) { waits_for_device_.store(waits, std::memory_order_relaxed); }

  // While it lives, its thread, the owner, has the port.
  class Turn {
   public:
    // Waits for the helper to leave.
    explicit Turn(Port& port) : handover_(port.handover_), inside_(true) { handover_.enter(); }
    // Does not wait.
    Turn(Port& port, std::try_to_lock_t) : handover_(port.handover_), inside_(handover_.try_enter()) {}
    ~Turn() {
      if (inside_) handover_.leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // False: the helper is inside.
    [[nodiscard]] bool inside() const { return inside_; }

   private:
    queue::Handover<>& handover_;
    const bool inside_;
  };

  // ---- the owner; see TransportWorker
  [[nodiscard]] bool arm();
  void peer_failed(std::uint32_t rank);

  // ---- any thread
  // The library is armed for an owner that wants to sleep, and nothing has come since.
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire); }
  // True: it was armed, and the caller must ring.
  [[nodiscard]] bool disarm() { return armed() && armed_.exchange(false, std::memory_order_acq_rel); }
  // A number that changes when its owner polls. Relaxed: a hint.
  [[nodiscard]] std::uint32_t polls() const { return polls_.load(std::memory_order_relaxed); }
  // The library was armed, and the owner has left nothing to it since.
  [[nodiscard]] bool quiet() const { return quiet_.load(std::memory_order_acquire); }
  [[nodiscard]] bool waits_for_device() const {
    return waits_for_device_.load(std::memory_order_relaxed) || has_mail();
  }
  // The device has brought notes for this port; the thread that has the port takes them. Relaxed:
  // the notes themselves are the transport's, under the device's mutex.
  [[nodiscard]] bool has_mail() const { return has_mail_.load(std::memory_order_relaxed); }
  void set_has_mail(bool has) { has_mail_.store(has, std::memory_order_relaxed); }
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_acquire); }

  // ---- the helper
  // A quarter of the time-out is over: the thread that makes progress next calls ask_silent().
  void begin_round() { round_.fetch_add(1, std::memory_order_relaxed); }
  // Some connection of this port was ended: perhaps nothing was under way there, so that the
  // library tells nobody. All peers are asked.
  void ask_all() {
    asks_all_.store(true, std::memory_order_relaxed);
    has_questions_.store(true, std::memory_order_relaxed);
    begin_round();
  }
  // Questions have not left yet, or were not answered: its owner shall make progress in each round.
  [[nodiscard]] bool has_questions() const { return has_questions_.load(std::memory_order_relaxed); }
  // quiet: nothing is there, and the library is armed. waiting: the same, but the library has
  // something whose end it may not report. more: there was something until the end. stuck: the
  // owner is inside, or the library cannot be armed now. not_ours: its owner has armed it and
  // sleeps, and events taken from the library now would wake nobody; or only the owner may make
  // progress; or the kernel has no membarrier.
  enum class Served : std::uint8_t { quiet, waiting, more, stuck, not_ours };
  // Makes progress in place of the owner; `thread`: the number of the helper's thread.
  [[nodiscard]] Served serve(std::uint32_t thread);

  // ---- the end
  // By the owner, at the end: nobody polls any more. After this the caller's memory is not used;
  // accepted messages still leave. The port belongs to the device.
  void retire();
  // By the device, afterwards: makes progress. True: something is still under way. It does nothing
  // if only the owner may make progress.
  bool linger();
  // All messages have arrived that a worker waits for: the device tells that the port is closed by
  // another connection.
  [[nodiscard]] virtual bool all_arrived() const { return true; }
  [[nodiscard]] std::uint64_t retired_at_ns() const { return retired_at_ns_; }
  bool told_closed = false;  // by the device: those who asked for it know that it is closed
  // By the device, afterwards: arms the library. False: something is there.
  [[nodiscard]] bool arm_retired() { return owners_only() || arm_library(); }

 protected:
  // `slots`: transfers, and as many messages, that may be under way.
  Port(Device& device, std::uint32_t index, std::uint32_t slots);

  // The library can be polled, and reports arrivals by this descriptor: from now on the helper
  // serves it. NO_MEMORY, SYSTEM.
  base::Status watch(int descriptor);
  // Before the library's queue ends, while the device lives: another queue may get its descriptor's
  // number. Without the device's mutex. Not for a retired port.
  void unwatch();

  // ---- what a transport does; a thread that has the port calls these
  // Makes progress, and does everything else that a poll does, except that it hands out and
  // releases no messages. Completions wait for the next poll. True: the library had something.
  virtual bool move_on() = 0;
  // The library's own progress only. True: it had something.
  virtual bool progress_library() = 0;
  // The library will report the next arrival by its descriptor. False: not now.
  [[nodiscard]] virtual bool arm_library() = 0;
  // Transfers, or messages that the library or a list still has: it may not report their end.
  [[nodiscard]] virtual bool in_flight() const = 0;
  // Transfers that use the caller's memory and were not reported as done.
  [[nodiscard]] virtual bool transfers_under_way() const = 0;
  // There are no such transfers, and nothing is left of them.
  [[nodiscard]] virtual bool transfers_at_rest() const { return !transfers_under_way(); }
  // Connections are being closed.
  [[nodiscard]] virtual bool disconnecting() const { return false; }
  // Progress may touch the caller's memory after the caller was told of the end. So nobody makes
  // progress in the owner's place.
  [[nodiscard]] virtual bool owners_only() const { return false; }
  // Ends the connections that have transfers under way, by force: the worker is being closed.
  virtual void disconnect_transfers() = 0;
  // The worker's rank has failed: operations under way to it fail with PEER_FAILED, and nothing is
  // sent there any more. A peer that is broken already may still have something to end.
  virtual void disconnect_failed(Peer& peer) = 0;

  // ---- what a transport with messages does besides; the defaults are for one without
  // Tells the peers everything that they were not told yet.
  virtual void tell_all() {}
  // Peers must be told something, or a message was not reported as complete.
  [[nodiscard]] virtual bool owes() const { return false; }
  [[nodiscard]] virtual bool messages_at_rest() const { return true; }
  // Nobody polls any more: all that arrives from now on is consumed at once.
  virtual void stop_taking() {}
  // By linger(): drops the messages that have arrived. True: peers that live must still be told of
  // them.
  virtual bool drop_arrivals() { return false; }
  // Asks peers that have told nothing since the last round, though they have to.
  virtual void ask_silent() {}

  void ask_if_due() {
    if (const std::uint32_t round = round_.load(std::memory_order_relaxed); round != asked_in_) [[unlikely]] {
      asked_in_ = round;
      ask_silent();
    }
  }
  // In each round a sleeping owner is woken for them.
  void set_has_questions(bool has) { has_questions_.store(has, std::memory_order_relaxed); }
  // See ask_all(); once.
  [[nodiscard]] bool asks_all() { return asks_all_.exchange(false, std::memory_order_relaxed); }
  // By every poll of the owner. Returns the new count.
  std::uint32_t count_poll() {
    const std::uint32_t poll = polls() + 1;
    polls_.store(poll, std::memory_order_relaxed);
    return poll;
  }
  void note_progress() {
    if (armed()) [[unlikely]]
      armed_.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] bool at_rest() const;
  // Messages and transfers that were not reported as complete.
  [[nodiscard]] std::uint32_t messages_taken() const { return completions_.messages().taken(); }
  [[nodiscard]] std::uint32_t transfers_taken() const { return completions_.transfers().taken(); }

 private:
  void close();

  Device& device_;
  const std::uint32_t index_;
  bool closed_ = false;
  std::uint64_t retired_at_ns_ = 0;
  std::atomic<std::uint32_t> polls_{0};  // written by the owner. Relaxed
  Completions completions_;
  Peers peers_;

  // between the owner and the helper; entered for good when retired
  queue::Handover<> handover_;
  int descriptor_ = -1;             // the library's
  std::uint32_t watch_ = 0;         // the helper's number of it
  std::atomic<bool> armed_{false};  // set by arm(), cleared by the thread that finds something
  // set by the helper and by arm(), cleared by the owner, which then wakes the helper; both inside
  std::atomic<bool> quiet_{false};
  std::atomic<bool> waits_for_device_{false};
  std::atomic<bool> has_mail_{false};
  std::atomic<std::uint32_t> round_{0};  // relaxed: a round is no moment
  std::uint32_t asked_in_ = 0;           // the round
  // set by the helper; a port that misses them sees them in the next round. Relaxed
  std::atomic<bool> asks_all_{false};
  std::atomic<bool> has_questions_{false};
  // release by retire(), acquire by the helper, which does not touch it afterwards
  std::atomic<bool> retired_{false};
};

}  // namespace heddle::transport::network
