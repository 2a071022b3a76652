// The network interfaces of this process: takes commands from its TOQs, sends and handles packets,
// writes notices. It runs on its own thread, which starts with the first VCQ or gate and sleeps
// when there is no work. With UTOFU_EMU_STEP=1 there is no thread; each call runs a round.
//
// A round handles answers, requests, commands, gates. Each does what it can and never waits: a
// command whose target's ring is full continues in the next round, and a request whose answer has
// no room stays in its ring. Answers can always be taken, so some process always makes progress.
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

#include "queue/record_ring.hpp"
#include "tofu/emulator/cq.hpp"
#include "tofu/emulator/delivery.hpp"
#include "tofu/emulator/job_watch.hpp"
#include "tofu/emulator/memory.hpp"
#include "tofu/emulator/messages.hpp"
#include "tofu/emulator/packet.hpp"
#include "tofu/emulator/stags.hpp"
#include "tofu/emulator/world.hpp"

namespace tofu_emulator {

class Process;

// The error that poll_mrq returns for it.
int mrq_error(Refusal refusal);

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
  void drain(CommandQueue& cq);
  // Paused: answers for this CQ, or for one of its VCQs, will be dropped.
  void forget(const CommandQueue& cq);
  void forget(CommandQueue& cq, std::uint16_t slot);

  // Commands of this VCQ that can run and have not left, and commands that wait for an answer.
  std::size_t under_way(const Vcq& vcq);

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
    Refusal refused;                 // an earlier piece was refused
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
  std::size_t execute(CommandQueue& cq);
  [[nodiscard]] bool begin(CommandQueue& cq, std::uint64_t ready_ns);
  [[nodiscard]] Handled push(CommandQueue& cq);
  [[nodiscard]] Handled push_put(CommandQueue& cq);
  [[nodiscard]] Handled push_small(CommandQueue& cq);
  void open_message(CommandQueue& cq);
  void finish(CommandQueue& cq, int status);
  void refuse(CommandQueue& cq, Refusal refusal);
  [[nodiscard]] PacketHead head_of(const CommandQueue& cq) const;
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
  void take_put(const Arrival& arrival, CommandQueue* cq, const Reply& reply);
  [[nodiscard]] Handled take_get(const Arrival& arrival, CommandQueue* cq);
  void take_exchange(const Arrival& arrival, CommandQueue* cq, const Reply& reply);
  void turn_away(const Arrival& arrival, const Reply& reply, Refusal refusal);
  [[nodiscard]] CommandQueue* addressee(const PacketHead& head);
  [[nodiscard]] Refusal store(const Arrival& arrival, CommandQueue& cq);
  void pad(const PacketHead& head, const Hold& hold);
  void arrived(const Arrival& arrival, CommandQueue& cq, std::uint8_t type, std::uint64_t value);
  [[nodiscard]] bool reserve(const Arrival& arrival, PacketKind kind, std::uint32_t bytes, Reply* reply);
  void answer(const Arrival& arrival, const Reply& reply, Refusal refusal, std::uint64_t value, std::uint32_t offset);
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
  std::unordered_map<const CommandQueue*, Stall> stalls_;
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
