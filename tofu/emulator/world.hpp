// The memory that the processes of a world share: the directory with the processes and the owners
// of the CQs, the rings between processes, and their packets.
//
// It is a file without a name made by `heddle run` (UTOFU_EMU_FD), or a file with a name
// (UTOFU_EMU_WORLD), or, for a single process, anonymous memory. Only touched pages take memory.
// The first process writes the settings that all must agree on.
#pragma once

#include <utofu.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "queue/record_ring.hpp"
#include "tofu/emulator/doorbell.hpp"
#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFF;
inline constexpr std::uint32_t kMaskWords = kMaxProcesses / 64;

enum class Channel : std::uint8_t { requests, responses };
inline constexpr std::uint32_t kChannels = 2;

// The directory's word for a CQ or gate: owner and generation. The generation counts the owners.
struct DirectoryOwner {
  std::uint32_t process = kNobody;
  std::uint32_t generation = 0;
  [[nodiscard]] bool somebody() const { return process != kNobody; }
  bool operator==(const DirectoryOwner&) const = default;
};

enum class Presence : std::uint32_t { absent, joined, left };

// One line or more for each process. Zeroed: absent.
struct alignas(heddle::queue::kRingLine) ProcessEntry {
  std::atomic<Presence> presence;  // release by the process itself; acquire by readers
  std::atomic<std::uint32_t> pid;  // relaxed: published by presence
  // start time in the kernel's ticks: unique together with the pid. relaxed: as pid
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint32_t> death_told;  // relaxed exchange: only one process reports the death
  // release/acquire: an engine takes records from the rings
  std::atomic<std::uint32_t> engine_runs;
  // relaxed: for the watchdogs of all processes. Changes whenever something has moved in this
  // process; written at its looks, and before it sleeps.
  std::atomic<std::uint64_t> moved;
  alignas(heddle::queue::kRingLine) DoorbellWord<> doorbell;
  // A bit for each process whose ring may have records for this process. Set (seq_cst) by the
  // source after it has published, cleared (seq_cst) by the engine before it reads the ring.
  alignas(heddle::queue::kRingLine) std::array<std::array<std::atomic<std::uint64_t>, kMaskWords>, kChannels> filled;
};

class World {
 public:
  // Joins the world. Null: *problem says why not and what to do.
  static std::unique_ptr<World> join(const EmulatorSettings& settings, const Machine& machine, std::string* problem);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The directory. Any thread, no lock; the processes of a node compete for its CQs and gates.
  // False: it has an owner.
  [[nodiscard]] bool claim_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq);
  void release_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq);
  [[nodiscard]] DirectoryOwner cq_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const;
  [[nodiscard]] bool claim_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate);
  void release_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate);
  [[nodiscard]] DirectoryOwner gate_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const;

  [[nodiscard]] std::uint32_t processes() const { return processes_; }
  [[nodiscard]] ProcessEntry& entry(std::uint32_t process) const { return entries_[process]; }
  // 0, or 1 + the process that has ended the job.
  [[nodiscard]] std::atomic<std::uint32_t>& ended() const;
  // It has joined, and has ended without leaving; false if this cannot be found out. System calls.
  [[nodiscard]] bool died(std::uint32_t process) const;
  // How it ended, in words, as far as the kernel still knows.
  [[nodiscard]] std::string describe_death(std::uint32_t process) const;

  [[nodiscard]] std::uint32_t self() const { return process_; }

  // The memory of the timing model's Links, Links::bytes() long; null: the model is off.
  [[nodiscard]] std::byte* link_memory() const { return links_; }

  // A ring's ends. The engine of the process at that end makes it once.
  [[nodiscard]] heddle::queue::RecordProducer<> producer(std::uint32_t from, std::uint32_t to, Channel channel) const;
  [[nodiscard]] heddle::queue::RecordConsumer<> consumer(std::uint32_t from, std::uint32_t to, Channel channel) const;

 private:
  struct Header;
  using Word = std::atomic<std::uint64_t>;

  World() = default;
  bool open_shared(const EmulatorSettings& settings, std::string* problem);
  bool map(const EmulatorSettings& settings, const Machine& machine, int fd, std::string* problem);
  bool enter(const EmulatorSettings& settings, std::string* problem);
  [[nodiscard]] std::byte* ring(std::uint32_t from, std::uint32_t to, Channel channel) const;
  [[nodiscard]] Word* cq_word(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const;
  [[nodiscard]] Word* gate_word(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const;
  [[nodiscard]] bool claim(Word* word) const;

  heddle::base::Fd file_;
  std::string path_;  // to be removed by the last process; empty: none
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Header* header_ = nullptr;
  ProcessEntry* entries_ = nullptr;
  Word* cqs_ = nullptr;
  Word* gates_ = nullptr;
  std::byte* rings_ = nullptr;
  std::byte* links_ = nullptr;
  std::uint32_t ring_bytes_ = 0;
  std::uint32_t nodes_ = 0;  // nodes that have processes
  std::uint32_t processes_ = 1;
  std::uint32_t process_ = 0;
  bool entered_ = false;
};

// The packets between processes: a head of 64 bytes and up to kMtu bytes of data.
//
// Requests and responses have separate rings. Handling a request may emit responses; handling a
// response emits nothing. So a response is always taken in the end, and a request ring may wait for
// room in a response ring.

// The type of the record in the ring.
enum class PacketKind : std::uint8_t {
  put = 2,
  get,
  armw,       // also compare and swap: operand and compare are the data
  gate,       // a barrier gate's signal: every member except kind belongs to the gates
  ack,        // responses from here on
  got,        // data of a get
  exchanged,  // armw: the old value in `stadd`
};

// Why a request was not executed.
enum class Rejection : std::uint8_t { none, peer, stadd, length, memory };

// PacketHead::op of a put whose sender could not continue to read its memory: ignored.
inline constexpr std::uint8_t kAbandoned = 0xFF;

inline constexpr std::size_t kExchangeBytes = 16;  // operand and compare

struct PacketHead {
  std::uint64_t source_vcq = 0;  // raw id
  std::uint64_t stadd = 0;       // requests: of the message's first byte, at the target
  std::uint64_t message = 0;     // the initiator's number for the answer; 0: no answer is expected
  std::uint64_t model_ns = 0;    // when it arrives, in the timing model
  std::uint32_t length = 0;      // of the message
  std::uint32_t offset = 0;      // of this packet's data in it
  std::uint32_t sequence = 0;    // of the message among those of the source VCQ to this process
  // of the target's CQ, as the source knew it: a later owner ignores packets for an earlier one
  std::uint32_t generation = 0;
  std::uint16_t bytes = 0;  // data in this packet
  std::uint16_t flags = 0;  // UTOFU_ONESIDED_FLAG_*
  std::uint8_t tni = 0;     // the target VCQ
  std::uint8_t cq = 0;
  std::uint8_t slot = 0;
  std::uint8_t path = kNoPath;
  std::uint8_t edata = 0;
  std::uint8_t sps = 0;
  std::uint8_t op = 0;      // armw: enum utofu_armw_op; 0: compare and swap. put: 0 or kAbandoned
  std::uint8_t denied = 0;  // responses: a Rejection
  std::uint32_t spare = 0;  // used by the gates
};
static_assert(sizeof(PacketHead) == 64);

}  // namespace tofu_emulator
