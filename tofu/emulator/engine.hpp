// The network interfaces of this process: messages under way, strict mode, stillness, the engine.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "queue/record_ring.hpp"
#include "tofu/emulator/cq.hpp"
#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/memory.hpp"
#include "tofu/emulator/world.hpp"

namespace tofu_emulator {

class EmulatedCq;

// The commands of this process that wait for an answer. Engine only.
struct Message {
  std::uint64_t id = 0;       // 0: free
  EmulatedCq* cq = nullptr;   // null: its CQ is closed; the answer is dropped
  std::uint32_t process = 0;  // the target
  std::uint32_t generation = 0;
  VcqPlace target;
  std::uint16_t slot = 0;  // the initiator's VCQ
  Opcode opcode = Opcode::nop;
  std::uint8_t edata = 0;
  bool notice = false;  // LOCAL_MRQ_NOTICE
  std::uint32_t length = 0;
  std::uint32_t left = 0;     // get: bytes that have not arrived
  int error = UTOFU_SUCCESS;  // get: the error of a piece that could not be stored
  utofu_vcq_id_t remote = 0;
  utofu_stadd_t local_stadd = 0;
  utofu_stadd_t remote_stadd = 0;
  std::uint64_t model_ns = 0;  // arrival of the latest piece
};

// Ids contain a count of the uses of their slot, so that a late answer finds no message.
class Messages {
 public:
  Message& open() {
    if (free_.empty()) {
      all_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(all_.size() - 1));
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    Message& message = all_[place];
    message = Message{};
    message.id = ++uses_ << 32 | (place + 1);
    return message;
  }
  // Null: it has completed.
  [[nodiscard]] Message* find(std::uint64_t id) {
    const std::uint64_t place = (id & 0xFFFFFFFF) - 1;
    return place < all_.size() && all_[place].id == id ? &all_[place] : nullptr;
  }
  void close(Message& message) {
    free_.push_back(static_cast<std::uint32_t>((message.id & 0xFFFFFFFF) - 1));
    message.id = 0;
  }
  [[nodiscard]] std::size_t open_count() const { return all_.size() - free_.size(); }
  // Visits the open messages; `visit` may close the one that it gets.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].id != 0) visit(all_[i]);
    }
  }

 private:
  // grows to the largest number ever open, at most kMaxMessages for each CQ
  std::vector<Message> all_;
  std::vector<std::uint32_t> free_;
  std::uint64_t uses_ = 0;  // 32 bits are used: an id returns after four thousand million commands
};

inline constexpr std::size_t kMaxMessages = 4096;  // a CQ with this many open messages waits

// Strict mode: packets that arrive are delayed and handled in another order, as the hardware may do
// it.
//
// Packets of messages with STRONG_ORDER keep their order among those of the same pair of VCQs and
// the same path, and only among those. All others are shuffled, and whole messages are delayed at
// random. This class also detects the last handled piece of a message, so that notices and credits
// come after all pieces.
//
// Time is counted in ticks, one for each round of the engine: the same seed and the same rounds
// give the same order.
class Delivery {
 public:
  struct Parcel {
    PacketHead head;
    std::vector<std::byte> data;
    PacketKind kind = PacketKind::put;
    std::uint32_t source = 0;
    std::uint32_t served = 0;   // get: see Engine::Arrival
    std::uint64_t stream = 0;   // 0: unordered
    std::uint64_t turn = 0;     // in its stream
    std::uint64_t message = 0;  // key
    std::uint64_t due = 0;      // tick
    std::uint64_t arrived = 0;  // its number among all packets that came to this process
  };
  // What is known about the message's other pieces when one is handled.
  struct Pieces {
    bool last = true;
    Rejection rejected = Rejection::none;
  };

  explicit Delivery(std::uint64_t seed) : random_(seed) {}

  void reseed(std::uint64_t seed) { random_ = heddle::base::Random(seed); }
  [[nodiscard]] bool full() const { return parcels_.size() >= kMost; }
  [[nodiscard]] bool empty() const { return parcels_.empty(); }
  void add(PacketKind kind, const PacketHead& head, const std::byte* data, std::uint32_t source, std::uint64_t arrived);

  // One tick: calls handle(parcel, pieces) for all parcels that are due, in a random order where
  // order is free. If handle returns false, the parcel is offered again later. Returns the number
  // of handled parcels.
  template <class Handle>
  std::size_t tick(Handle&& handle) {
    ++now_;
    std::size_t done = 0;
    const bool hurry = full();
    for (std::size_t left = parcels_.size(), at = left == 0 ? 0 : random_.below(left); left != 0; --left) {
      if (at >= parcels_.size()) at = 0;
      Parcel& parcel = parcels_[at];
      if (!may_go(parcel, hurry && done == 0) || !handle(parcel, pieces_of(parcel))) {
        ++at;
        continue;
      }
      gone(parcel);
      // the parcel moved into this place may be due too
      parcel = std::move(parcels_.back());
      parcels_.pop_back();
      ++done;
    }
    return done;
  }

  // Calls handle(parcel, pieces) at once for all parcels of a process that arrived before `before`:
  // later packets must not overtake them. handle() must take them all.
  template <class Handle>
  void release(std::uint32_t source, std::uint64_t before, Handle&& handle) {
    for (bool more = true; more;) {
      more = false;
      for (std::size_t at = 0; at < parcels_.size();) {
        Parcel& parcel = parcels_[at];
        if (parcel.source != source || parcel.arrived > before || !may_go(parcel, true)) {
          ++at;
          continue;
        }
        (void)handle(parcel, pieces_of(parcel));
        gone(parcel);
        parcel = std::move(parcels_.back());
        parcels_.pop_back();
        more = true;
      }
    }
  }

  // Notes that a piece of this parcel's message was rejected.
  void rejected(const Parcel& parcel, Rejection rejection) { messages_[parcel.message].rejected = rejection; }

 private:
  static constexpr std::size_t kMost = 256;
  struct MessageState {
    std::uint32_t handled = 0;  // bytes
    Rejection rejected = Rejection::none;
    std::uint64_t held_until = 0;
  };
  struct Stream {
    std::uint64_t arrived = 0;
    std::uint64_t handled = 0;
    std::uint64_t held_until = 0;
  };

  [[nodiscard]] bool may_go(const Parcel& parcel, bool hurry);
  [[nodiscard]] Pieces pieces_of(const Parcel& parcel);
  void gone(const Parcel& parcel);
  [[nodiscard]] std::uint64_t hold_back();

  heddle::base::Random random_;
  std::uint64_t now_ = 0;
  std::vector<Parcel> parcels_;
  // messages of which some pieces, not all, have arrived
  std::unordered_map<std::uint64_t, MessageState> messages_;
  std::unordered_map<std::uint64_t, Stream> streams_;
};

// Decides whether the job stands still, or whether its interfaces lack a processor. Values come in
// and a finding goes out: no clock, no system call.
//
// Commands that are posted or executed, and data that is received or read, count as movement. A
// poll never does: a process that polls in vain looks busy but does not go on.
class JobWatch {
 public:
  enum class Finding : std::uint8_t {
    nothing,
    // For the limit nothing has moved in any process, and this process uses the processor: it
    // computes, or it polls for something that nobody has posted. Once for each standstill.
    stands_still,
    // The job moves; for a quarter of the limit or more this process's engine was ready and got no
    // core. Once.
    starved,
  };
  struct Seen {
    std::uint64_t now_ns;
    std::uint64_t moved;        // of all processes of the job; any change is a move
    std::uint64_t used_ns;      // processor time of this process
    std::uint64_t kept_out_ns;  // how long the engine's thread was ready and had no core
  };

  // 0: never finds anything.
  explicit JobWatch(std::uint64_t limit_ns) : limit_ns_(limit_ns) {}

  [[nodiscard]] Finding look(const Seen& seen) {
    if (limit_ns_ == 0) return Finding::nothing;
    if (!begun_) {
      begun_ = true;
      window_ = seen;
      moved_ = seen;
      return Finding::nothing;
    }
    if (seen.moved != moved_.moved) {
      moved_ = seen;
      standstill_told_ = false;
    }
    if (seen.now_ns - window_.now_ns >= limit_ns_ && starved(seen)) return Finding::starved;
    const std::uint64_t since_ns = seen.now_ns - moved_.now_ns;
    if (standstill_told_ || since_ns < limit_ns_ || seen.used_ns - moved_.used_ns < since_ns / kUses)
      return Finding::nothing;
    standstill_told_ = true;
    return Finding::stands_still;
  }

  // The finding for the last whole window, which is at least as long as the limit.
  [[nodiscard]] std::uint64_t last_kept_out_ns() const { return last_kept_out_ns_; }
  [[nodiscard]] std::uint64_t last_window_ns() const { return last_window_ns_; }

 private:
  // At the end of a window: begins the next.
  bool starved(const Seen& seen) {
    // a new thread counts from 0
    last_kept_out_ns_ = seen.kept_out_ns > window_.kept_out_ns ? seen.kept_out_ns - window_.kept_out_ns : 0;
    last_window_ns_ = seen.now_ns - window_.now_ns;
    const bool found = !starved_told_ && seen.moved != window_.moved && last_kept_out_ns_ >= last_window_ns_ / kStarved;
    starved_told_ = starved_told_ || found;
    window_ = seen;
    return found;
  }

  static constexpr std::uint64_t kStarved = 4;
  // One that sleeps, or looks once a millisecond, uses less than this part of the time; one that
  // polls beside thirty others on its core uses more.
  static constexpr std::uint64_t kUses = 32;

  const std::uint64_t limit_ns_;
  Seen window_{};
  Seen moved_{};  // at the last move
  std::uint64_t last_kept_out_ns_ = 0;
  std::uint64_t last_window_ns_ = 0;
  bool begun_ = false;
  bool standstill_told_ = false;
  bool starved_told_ = false;
};

class Process;

// The error that poll_mrq returns for it.
int mrq_error(Rejection rejection);

// The network interfaces of this process: takes commands from its TOQs, sends and handles packets,
// writes notices. It runs on its own thread, which starts with the first VCQ or gate and sleeps
// when there is no work. With UTOFU_EMU_STEP=1 there is no thread; each call runs a round.
//
// A round handles answers, requests, commands, gates. Each does what it can and never waits: a
// command whose target's ring is full continues in the next round, and a request whose answer has
// no room stays in its ring. Answers can always be taken, so some process always makes progress.
class Engine {
 public:
  explicit Engine(Process& process);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // No round runs while it lives: for changes to the data that rounds use. Any thread but the
  // engine's; not for hot paths.
  class Pause {
   public:
    explicit Pause(Engine& engine);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Engine& engine_;
  };

  // Users are CQs and sets of gates. The thread runs while there is a user. One thread at a time
  // (Process::management()).
  void add_user();
  void remove_user();

  // To be called after a sequentially consistent publication of work for a round. Any thread of the
  // application; it makes a system call only if the engine sleeps.
  void ring();

  // With UTOFU_EMU_STEP=1: runs a round and returns the number of things done. Otherwise does
  // nothing and returns 0. Any thread of the application.
  std::size_t step();

  // Within a round only. False: no room; try again in the next round.
  [[nodiscard]] bool send_request(std::uint32_t process, PacketKind kind, const PacketHead& head, const void* data);

  // One thread at a time (Process::management()), not paused. Runs the CQ's commands that can run,
  // as long as they make progress.
  void drain(EmulatedCq& cq);
  // Paused: answers for this CQ, or for one of its VCQs, will be dropped.
  void forget(const EmulatedCq& cq);
  void forget(EmulatedCq& cq, std::uint16_t slot);

  // Commands of this VCQ that can run and have not left, and commands that wait for an answer.
  std::size_t under_way(const EmulatedVcq& vcq);

  // The bytes of all puts that a TNI has sent for this process. Any thread.
  [[nodiscard]] std::uint64_t put_bytes(std::uint16_t tni) const {
    return put_bytes_[tni].load(std::memory_order_relaxed);
  }

  void reseed(std::uint64_t seed);
  // Writes the CQs' state to a descriptor. Paused, or on the engine.
  void dump(int fd);

 private:
  // This process's end of the rings to another process.
  struct Target {
    std::array<heddle::queue::RecordProducer<>, kChannels> ends;
    std::array<bool, kChannels> unpublished{};
    bool made = false;
    bool dead = false;  // set by look(): the process has died
  };
  struct Source {
    std::array<heddle::queue::RecordConsumer<>, kChannels> ends;
    std::uint32_t served = 0;  // bytes served of the get at the head of its request ring
    bool made = false;
  };
  // A CQ that has commands and makes no progress.
  struct Stall {
    std::uint64_t executed = 0;
    std::uint64_t since_ns = 0;
    bool told = false;
  };
  enum class Handled : std::uint8_t { done, stalled };
  struct Arrival {
    PacketKind kind;
    const PacketHead* head;
    const std::byte* data;
    std::uint32_t source;
    bool last;                       // it is the last handled piece of its message
    Rejection rejected;              // an earlier piece was rejected
    std::uint32_t* served;           // get: bytes answered so far
    const Delivery::Parcel* parcel;  // strict mode
  };
  // Space in a ring for the answer. Null: no answer is expected.
  struct Reply {
    std::byte* place = nullptr;
    PacketKind kind = PacketKind::ack;
    std::uint32_t bytes = 0;
  };

  void run();
  std::size_t round();
  void flush();
  [[nodiscard]] bool something_there() const;
  void sleep_until_rung();
  void look();
  void look_at_peers();
  void look_for_deaths(std::uint64_t now_ns);
  [[noreturn]] void end_with_the_job(std::uint32_t by);
  void look_at_stalls(std::uint64_t now_ns);
  void look_at_job(std::uint64_t now_ns);
  void publish_moved();
  [[nodiscard]] bool gone(std::uint32_t process);

  // outbound.cpp
  std::size_t execute(EmulatedCq& cq);
  [[nodiscard]] bool begin(EmulatedCq& cq, std::uint64_t ready_ns);
  [[nodiscard]] Handled push(EmulatedCq& cq);
  [[nodiscard]] Handled push_put(EmulatedCq& cq);
  [[nodiscard]] Handled push_small(EmulatedCq& cq);
  void open_message(EmulatedCq& cq);
  void finish(EmulatedCq& cq, int status);
  void reject(EmulatedCq& cq, Rejection rejection);
  [[nodiscard]] PacketHead head_of(const EmulatedCq& cq) const;
  [[nodiscard]] std::byte* place_for(std::uint32_t process, Channel channel, PacketKind kind, std::uint32_t bytes);
  Target& target(std::uint32_t process);

  // inbound.cpp
  Source& source(std::uint32_t process);
  [[nodiscard]] static bool makes_sense(PacketKind kind, const PacketHead& head, std::uint32_t bytes, Channel channel);
  std::size_t receive(Channel channel);
  [[nodiscard]] bool take_answers(std::uint32_t from);
  std::size_t drain_ring(std::uint32_t from, Channel channel, bool* emptied);
  std::size_t release_delayed();
  [[nodiscard]] Handled take_request(const Arrival& arrival);
  void take_put(const Arrival& arrival, EmulatedCq* cq, const Reply& reply);
  [[nodiscard]] Handled take_get(const Arrival& arrival, EmulatedCq* cq);
  void take_exchange(const Arrival& arrival, EmulatedCq* cq, const Reply& reply);
  void turn_away(const Arrival& arrival, const Reply& reply, Rejection rejection);
  [[nodiscard]] EmulatedCq* addressee(const PacketHead& head);
  [[nodiscard]] Rejection store(const Arrival& arrival, EmulatedCq& cq);
  void pad(const PacketHead& head, const Hold& hold);
  void arrived(const Arrival& arrival, EmulatedCq& cq, std::uint8_t type, std::uint64_t value);
  [[nodiscard]] bool reserve(const Arrival& arrival, PacketKind kind, std::uint32_t bytes, Reply* reply);
  void answer(const Arrival& arrival, const Reply& reply, Rejection rejection, std::uint64_t value,
              std::uint32_t offset);
  void take_response(const Arrival& arrival);
  void land(const Arrival& arrival, Message& message);
  void complete(Message& message, int status, std::uint64_t value, std::uint64_t model_ns);

  Process& process_;
  World& world_;
  const bool strict_;
  const bool step_;
  Memory memory_;
  JobWatch job_watch_;
  Doorbell<> bell_;
  std::vector<Target> targets_;
  std::vector<Source> sources_;
  std::array<std::array<std::uint64_t, kMaskWords>, kChannels> filled_{};  // sources to check
  // targets with unpublished records
  std::vector<std::uint32_t> unpublished_;
  // sources whose rings have room again
  std::vector<std::uint32_t> freed_;
  Messages messages_;
  Delivery delayed_requests_;
  Delivery delayed_responses_;
  std::uint64_t arrivals_ = 0;  // strict mode: packets so far
  bool stalled_ = false;        // something in this round waits for room in a ring
  std::uint32_t rounds_ = 0;
  std::uint64_t moved_ = 0;  // things done in all rounds
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t next_death_look_ns_ = 0;
  std::unordered_map<const EmulatedCq*, Stall> stalls_;
  // relaxed: statistics; written within rounds
  std::array<std::atomic<std::uint64_t>, kTnis> put_bytes_{};

  std::mutex rounds_mutex_;  // held while rounds run
  pid_t thread_id_ = 0;      // of the engine's thread; with the mutex held
  // threads that wait for the mutex: the engine lets them in. relaxed: the mutex orders
  std::atomic<std::uint32_t> pauses_{0};
  std::atomic<bool> stop_{false};  // seq_cst: see Doorbell
  std::uint32_t users_ = 0;
  std::thread thread_;
};

}  // namespace tofu_emulator
