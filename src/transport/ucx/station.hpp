// One worker with everything that UCX knows of it. It outlives the TransportWorker: what was accepted leaves although nobody polls for
// this worker any more, and peers that do not know yet may write to it. One thread at a time: its owner, within a Turn; the helper, by
// serve(), while the owner is elsewhere; the home, once it is retired.
//
// Messages of one worker to another are a stream, and each end of it a Channel. The receiver has a ring of a window's size for each
// sender, into which it copies what UCX brings; the sender counts what is on its way or not consumed yet and stops at a window.
// Consumption is told by every message of the other direction, or by a credit when it comes to half a window.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent_ - acked_ <= window;  receiver: told_ <= consumed_ <= arrived_ <= consumed_ + window
//   acked_ (here) <= told_ (there) and arrived_ (there) <= sent_ (here)
//   acked_ <= delivered_ <= sent_; what lies before delivered_ is in the receiver's memory, and done
//   A record begins where the one before it has ended, or at 0 if that was beyond a window; the ring is longer than a window
//   by one record, so it never meets records that are not consumed.
//
// A put is done when a flush of its endpoint, begun after it, has ended: puts that were posted between two polls share one.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "queue/handover.hpp"
#include "transport/ucx/home.hpp"
#include "transport/ucx/wire.hpp"

namespace heddle::transport::ucx {

struct Channel;

// A put, get or atomic under way.
struct Operation {
  Operation* next = nullptr;  // free list, or a channel's list of puts
  Channel* channel = nullptr;
  Station* station = nullptr;
  Token token = 0;
  void* request = nullptr;  // UCX's, until local_done
  bool active = false;
  bool is_put = false;
  bool local_done = false;   // UCX is through with the source
  bool flushed = false;      // put: it is in the target's memory
  bool orphan = false;       // reported as failed; UCX still has it
  bool owes_source = false;  // source_free was asked for and not reported yet
  base::Status status = HEDDLE_DONE;
  std::uint64_t operand = 0;  // atomics: UCX reads it until the end
  // Of atomics. UCX writes here and not to the caller's memory, so that an atomic can end whatever UCX makes of it.
  std::uint64_t result = 0;
  void* local = nullptr;  // where the caller wants it; null: nowhere
  std::uint32_t local_bytes = 0;
  // A bitwise atomic by compare-and-swap; see change().
  struct Change {
    bool active = false;
    std::uint8_t op = 0;
    std::uint64_t operand = 0;
    std::uint64_t address = 0;
    ucp_rkey_h key = nullptr;
  };
  Change change;
};

// A message on its way whose bytes UCX still reads, or that waits for its channel.
struct Packet {
  Packet* next = nullptr;
  Channel* channel = nullptr;
  Station* station = nullptr;
  std::uint32_t bytes = 0;   // head included
  unsigned id = kMessageId;  // or kBundleId
  alignas(8) std::byte data[sizeof(Head) + kMostMessage];
};

template <class T>
struct List {
  T* first = nullptr;
  T* last = nullptr;
  [[nodiscard]] bool empty() const { return first == nullptr; }
  void append(T* item) {
    item->next = nullptr;
    (last == nullptr ? first : last->next) = item;
    last = item;
  }
  T* take() {
    T* item = first;
    first = item->next;
    if (first == nullptr) last = nullptr;
    return item;
  }
};

// A message that UCX may have delivered, or not yet.
struct Sending {
  Sending* next = nullptr;
  Token token = 0;
  std::uint32_t end = 0;  // in its stream
};

// This worker and one worker of a rank: both directions.
struct Channel {
  enum class Stage : std::uint8_t { unopened, connecting, greeting, ready, closed, broken };
  Station* station = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
  Stage stage = Stage::unopened;
  base::Status status = HEDDLE_DONE;  // broken: of everything sent
  ucp_ep_h endpoint = nullptr;
  bool used = false;               // something has gone through it: no greeting is left on the way
  bool given_up = false;           // by us; UCX has nothing against it
  bool greeted = false;            // something has left through it: its connection is made
  bool heard = false;              // so is the peer's
  std::uint64_t dies_at = 0;       // ns; of one in dying_
  std::uint64_t greets_since = 0;  // ns

  // Towards the peer.
  std::uint32_t sent = 0;
  std::uint32_t acked = 0;
  std::uint32_t delivered = 0;
  std::uint32_t in_flight = 0;  // packets that UCX has
  std::uint32_t waiting_count = 0;
  List<Packet> waiting;  // accepted before there was a connection
  List<Sending> undelivered;

  // From the peer.
  std::unique_ptr<std::byte[]> ring;  // null: nothing has come yet
  std::uint32_t pass = 0;             // that its messages show
  std::uint32_t arrived = 0;
  std::uint32_t consumed = 0;
  std::uint32_t told = 0;
  std::uint32_t told_arrived = 0;
  std::uint32_t write_at = 0;
  std::uint32_t read_at = 0;
  std::uint32_t records = 0;  // not handed out
  std::uint32_t lent = 0;     // cost of what the last poll has handed out
  bool queued = false;        // in ready_
  bool owing = false;         // in owing_
  bool telling = false;       // in telling_
  bool credit_flies = false;
  Head credit;

  // Operations.
  List<Operation> unflushed;
  List<Operation> flushing;
  bool flush_flies = false;
  void* flush_request = nullptr;  // UCX's, while it flies
  bool dirty = false;             // in dirty_
};

class Station {
 public:
  static base::Result<std::unique_ptr<Station>> create(Home& home, std::uint32_t index);
  ~Station();
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  [[nodiscard]] std::size_t post(std::span<Command> batch);
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  void peer_failed(std::uint32_t rank);
  [[nodiscard]] bool closed(TransportWorker::Target target) const;
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }

  // While it lives, its thread has the station: the owner. It waits for the helper to leave.
  class Turn {
   public:
    explicit Turn(Station& station) : station_(station) { station.handover_.enter(); }
    ~Turn() { station_.handover_.leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Station& station_;
  };
  // The same without waiting. False: the helper is there.
  [[nodiscard]] bool try_enter() { return handover_.try_enter(); }
  void leave() { handover_.leave(); }

  // service.cpp. For sleeping, by the owner; see TransportWorker.
  [[nodiscard]] bool arm();
  [[nodiscard]] bool has_arrivals() const { return !armed(); }
  // ---- any thread ----
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire); }
  // True: it was armed, and it is the caller who must ring.
  [[nodiscard]] bool disarm() { return armed() && armed_.exchange(false, std::memory_order_acq_rel); }
  // A number that changes when its owner polls. Relaxed: a hint.
  [[nodiscard]] std::uint32_t polls() const { return turn_.load(std::memory_order_relaxed); }
  // UCX was armed, and the owner has left nothing in its hands since.
  [[nodiscard]] bool quiet() const { return quiet_.load(std::memory_order_acquire); }
  [[nodiscard]] bool waits_for_home() const { return waits_for_home_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_acquire); }
  // quiet: nothing is there, and UCX is armed. waiting: the same, but UCX has something that it may not tell the end of (its shared memory does
  // not tell that a peer has room again). more: it was busy until the end. stuck: only time helps. never: the kernel has no membarrier.
  // watched: its owner has armed it.
  enum class Served : std::uint8_t { quiet, waiting, more, stuck, watched, never };
  // The helper, with its thread's number: moves it on in its owner's stead.
  [[nodiscard]] Served serve(std::uint32_t thread);

  // By the owner, at last: nobody polls any more. The caller's memory is not used after this; messages are. The station is the home's.
  void retire();
  // UCX has transfers still that were told as failed, as it cannot be made to forget them (break_off()): where the peer lives, to move this worker on
  // may read or write memory that is the caller's again. So only its owner does, never anybody in its stead. For who has it.
  [[nodiscard]] bool has_orphans() const { return orphans_ != 0; }
  // After close(), for the Home. True: something moves on still.
  bool linger();
  // At last: UCX's worker ends.
  void end();
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }

 private:
  struct Unpacked {
    std::uint64_t generation = 0;  // 0: none
    Channel* channel = nullptr;
    ucp_rkey_h key = nullptr;
  };

  // An endpoint that is closed, and of which UCX has something still.
  struct Closing {
    Channel* channel;
    void* request;         // of closing it; null: it has ended
    std::uint64_t until;   // ns; what has not ended then UCX has forgotten
    std::uint32_t rounds;  // of progress since
  };

  Station(Home& home, std::uint32_t index);
  base::Status open();
  base::Status copy_address(Bytes* address);
  void close();
  [[nodiscard]] Channel*& slot(std::uint32_t rank, std::uint32_t worker) {
    return channel_of_[std::size_t{rank} * max_workers_ + worker];
  }
  [[nodiscard]] std::uint64_t now_ns() const { return home_.environment().clock->now_ns(); }

  // service.cpp
  base::Status be_watched();
  [[nodiscard]] bool at_rest() const;
  [[nodiscard]] bool move_on();
  void leaves_something();

  // station.cpp
  void emit(Token token, base::Status status, Event event);
  bool refuse(Command& command, base::Status status);
  std::size_t drain_backlog(std::span<Completion> out);
  // Null: it is not connected, or there is none.
  [[nodiscard]] Channel* connected(std::uint32_t rank, std::uint32_t worker) {
    if (rank >= failed_.size() || worker >= max_workers_) [[unlikely]]
      return nullptr;
    Channel* channel = slot(rank, worker);
    return channel != nullptr && channel->stage == Channel::Stage::ready ? channel : nullptr;
  }
  Channel* channel_to(std::uint32_t rank, std::uint32_t worker, base::Status* why);
  Channel* new_channel(std::uint32_t rank, std::uint32_t worker);
  void connect(Channel& channel);
  void advance_connecting();
  bool connection_ready(Channel& channel);
  bool greet(Channel& channel);
  void give_up(Channel& channel);
  static void on_broken(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  void after_progress();

  // breaking.cpp
  void break_off(Channel& channel, base::Status status, bool sure);
  void orphan(Channel& channel);
  [[nodiscard]] bool holds_some(const Channel& channel) const;
  void abandon(Channel& channel);
  void close_broken();
  void end_closing();

  // send.cpp
  bool post_message(Command& command);
  bool post_to_closed(Channel& channel, Command& command);
  std::size_t post_bundle(std::span<Command> batch);
  [[nodiscard]] std::size_t bundle_of(std::span<const Command> batch, const Channel& channel) const;
  bool send_by_value(Channel& channel, const Command& command);
  void keep_packet(Channel& channel, const Command& command, std::uint32_t bytes);
  void remember(Channel& channel, Token token);
  void end_messages(Channel& channel, base::Status status);
  bool send_packet(Channel& channel, Packet* packet);
  void send_waiting(Channel& channel);
  void drop_waiting(Channel& channel);
  void fill_head(Head* head, Channel& channel, std::uint32_t immediate);
  void send_credit(Channel& channel);
  void send_credits();
  void owe(Channel& channel);
  void tell_all();
  static void on_packet_sent(void* request, ucs_status_t status, void* user);
  static void on_credit_sent(void* request, ucs_status_t status, void* user);

  // receive.cpp
  static ucs_status_t on_message(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param);
  static ucs_status_t on_bundle(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param);
  bool arrived_together(Channel& channel, const Head& head, const std::byte* data, std::uint32_t bytes);
  static ucs_status_t on_credit(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param);
  Channel* sender_of(const Head& head);
  bool told_by(Channel& channel, const Head& head);
  void delivered(Channel& channel);
  void end_message(Channel& channel, base::Status status);
  bool arrived(Channel& channel, const Head& head, const std::byte* data, std::uint32_t bytes);
  bool open_ring(Channel& channel);
  void malformed(const char* what);
  std::size_t hand_out(std::span<Completion> out);
  std::size_t hand_out_of(Channel& channel, std::span<Completion> out);
  void release_lent();

  // transfer.cpp
  bool post_transfer(Command& command);
  base::Status check_transfer(const Command& command) const;
  base::Status begin(Command& command, Channel& channel, ucp_rkey_h key);
  // Unpacked once per region. Null: `why`; AGAIN: the peer was asked.
  ucp_rkey_h key_for(const Command& command, Channel& channel, base::Status* why) {
    const std::uint64_t number = command.remote->handle[0];
    if (number < unpacked_.size()) [[likely]] {
      const Unpacked& known = unpacked_[number];
      if (known.generation == command.remote->handle[1] && known.channel == &channel) [[likely]]
        return known.key;
    }
    return unpack_key(command, channel, why);
  }
  ucp_rkey_h unpack_key(const Command& command, Channel& channel, base::Status* why);
  void* update(const Command& command, Operation* operation, std::uint64_t address, ucp_rkey_h key);
  void* change(Operation* operation);
  void change_again();
  void started(Command& command, Operation* operation, void* request);
  static void on_local(void* request, ucs_status_t status, void* user);
  static void take_result(Operation& operation) {
    if (operation.local != nullptr) std::memcpy(operation.local, &operation.result, operation.local_bytes);
  }
  static void on_flushed(void* request, ucs_status_t status, void* user);
  void flush_dirty();
  bool flush(Channel& channel);
  void flush_ended(Channel& channel, base::Status status);
  void finish(Operation* operation);
  void forget_releases();
  void drop_key(Unpacked* entry);

  static constexpr std::uint32_t kWaitingPackets = 16;  // of one channel
  static constexpr std::uint32_t kPackets = 48;         // of this worker
  static constexpr std::uint32_t kRefusals = 256;       // that wait for a poll
  static constexpr std::uint32_t kInlineBytes = 104;    // head included: what networks take by value
  static constexpr std::uint32_t kTellPolls = 16;       // from an arrival until it is told by a message of its own
  // Polls between two looks at the home. For speed alone: notes are answered by the helper where nobody looks.
  static constexpr std::uint32_t kHomePeriod = 32;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // polls while something connects

  Home& home_;
  const Functions call_;
  const std::uint32_t index_;
  const std::uint32_t max_workers_;
  const std::uint32_t window_;
  const std::uint32_t pass_;
  ucp_worker_h worker_ = nullptr;
  std::vector<Channel*> channel_of_;  // by rank and worker
  Completion* out_ = nullptr;         // where the running poll writes; see emit()
  std::size_t room_ = 0;
  std::atomic<std::uint32_t> turn_{0};  // polls; written by the owner. Relaxed
  std::uint32_t skipped_ = 0;           // polls that have not asked UCX
  bool closed_ = false;
  List<Operation> changing_;       // atomics to be tried again
  std::vector<Channel*> dirty_;    // with puts that are not flushed
  std::vector<Channel*> ready_;    // with messages to hand out
  std::vector<Channel*> lending_;  // with messages that the last poll has handed out
  std::vector<Channel*> owing_;    // with credit to give back
  std::vector<Channel*> telling_;  // with arrivals that the peer may not have been told of
  std::uint32_t tell_at_ = 0;      // turn_
  std::vector<Channel*> connecting_;
  std::vector<Channel*> to_break_;  // UCX has said so; see on_broken()
  std::vector<Channel*> dying_;     // broken, and left to UCX for a while; see break_off()
  std::vector<std::unique_ptr<Channel>> channels_;
  std::unique_ptr<Packet[]> packets_;
  List<Packet> free_packets_;
  std::uint32_t packets_out_ = 0;
  std::uint32_t credits_out_ = 0;
  std::unique_ptr<Sending[]> sendings_;
  Sending* free_sending_ = nullptr;
  std::uint32_t undelivered_ = 0;
  std::unique_ptr<Operation[]> operations_;
  std::uint32_t operation_count_;
  Operation* free_operation_ = nullptr;
  std::uint32_t under_way_ = 0;
  std::uint32_t orphans_ = 0;
  std::vector<Unpacked> unpacked_;    // by import
  std::vector<ucp_rkey_h> old_keys_;  // that commands under way may still use
  std::uint64_t releases_seen_ = 0;
  std::vector<std::uint8_t> failed_;  // by rank
  // Completions for which a poll had no room, and refusals: a ring that cannot overflow.
  std::vector<Completion> backlog_;
  std::size_t backlog_first_ = 0;
  std::size_t backlog_count_ = 0;
  std::uint32_t refusals_ = 0;    // in the backlog, at most
  std::vector<Closing> closing_;  // each channel once
  std::uint64_t malformed_ = 0;

  queue::Handover<> handover_;  // between the owner and the helper; entered for good when retired
  int descriptor_ = -1;         // UCX's
  std::uint32_t watch_ = 0;     // the helper's number of it
  // UCX is armed for an owner that wants to sleep, and nothing has come since. Set by arm(), taken back by whoever finds something.
  std::atomic<bool> armed_{false};
  std::atomic<bool> quiet_{false};  // set by the helper, taken back by the owner, which then wakes it; both inside
  std::atomic<bool> waits_for_home_{false};  // connecting_ is not empty. Relaxed: who misses it looks again
  std::atomic<bool> retired_{false};  // release by retire(), acquire by the helper, which does not touch it afterwards
};

}  // namespace heddle::transport::ucx
