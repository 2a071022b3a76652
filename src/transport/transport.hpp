// The contract of a transport, which carries operations between processes. The conformance suite
// checks it.
//
// A Transport is opened once per context; a TransportWorker once per worker. Commands go down
// through post(), plain completion records come up through poll(). A transport never calls the
// engine, never allocates an operation, and never blocks: a command that it cannot take now is not
// accepted. After open it throws only std::bad_alloc, when memory runs out at the first use of a
// peer; the call then has no effect.
//
// Threads: any thread may call Transport's functions; one thread at a time a TransportWorker's. If
// Capabilities::one_thread is set, one and the same thread calls both, from open() to the
// destructors: see there.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"
#include "queue/bell.hpp"
#include "transport/command.hpp"

namespace heddle::transport {

// Whether a process can sleep until something arrives, and what that costs its senders.
enum class Sleeping : std::uint8_t {
  impossible,
  fenced,  // a full fence for some of the messages, whether anybody sleeps or not
  free     // nothing while nobody sleeps
};

// Limits and abilities; constant once the transport is open. Selection, `heddle info` and the
// conformance suite read it.
struct Capabilities {
  const char* name = "";
  std::uint32_t opcodes = 0;  // bit(Opcode), for remote memory that is not direct
  // allocated regions of some ranks may import as direct memory: direct_to() tells which ranks
  bool direct = false;
  // a message that post() accepts has been copied, also one that is not inlined
  bool copies_messages = false;
  // messages of one worker to one worker arrive in the order of posting
  bool ordered_messages = false;
  std::uint32_t max_message = 0;   // bytes of header + payload in one message
  std::uint64_t max_transfer = 0;  // bytes of one put or get command
  // for a longer message, a get by its receiver is better; 0: never
  std::uint64_t fetch_bytes = 0;
  std::uint32_t max_workers = 0;  // per process
  Sleeping sleeping = Sleeping::impossible;
  // An arrival for an armed worker rings, whoever polls the worker meanwhile. Else a poll disarms
  // it, and what that has taken rings nobody.
  bool rings_all = false;
  // The library below takes calls from one thread only. Then only that thread may call open(), the
  // transport's functions and destructor, and those of its workers. It is the same thread for all
  // such transports of the process. Any thread may call capabilities, describe, release,
  // common_words, counters and the functions for sleeping, which call no library.
  bool one_thread = false;
  // bytes of buffers per connected pair of workers (one direction)
  std::uint64_t memory_per_peer = 0;
  std::uint32_t key_bytes = 48;  // of a region's key that are used: zeros follow
};

// ---- memory -------------------------------------------------------------------------------------

inline constexpr std::size_t kKeyBytes = 48;
inline constexpr std::size_t kWideKeyBytes = 80;

// The key by which one peer reaches a region through this transport. Carried as bytes; import()
// must treat it as hostile.
struct MemoryKey {
  std::array<std::byte, kKeyBytes> bytes{};
};

// The keys for all peers, if ranks are reached in different ways. Transport::key_for() takes the
// key for one rank from it.
struct WideKey {
  WideKey() = default;
  // One key for all ranks.
  WideKey(const MemoryKey& key) {  // NOLINT(google-explicit-constructor): what all transports but one have
    std::copy(key.bytes.begin(), key.bytes.end(), bytes.begin());
  }
  // The key, if there is one for all ranks.
  [[nodiscard]] MemoryKey front() const {
    MemoryKey key;
    std::copy_n(bytes.begin(), key.bytes.size(), key.bytes.begin());
    return key;
  }
  std::array<std::byte, kWideKeyBytes> bytes{};
};

// A region of this process, as the transport knows it.
struct LocalMemory {
  void* address = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t id = 0;  // transport's own; names it in deregister and free
  WideKey key;
  std::uint64_t second_id = 0;  // transport's own, if one id does not suffice
};

// ---- completions --------------------------------------------------------------------------------

enum class Event : std::uint8_t {
  // the command with this token is finished at the target (message: in the target's memory), or
  // failed. Token 0: of no command; a peer was served or a part has moved: go on polling
  done,
  source_free,  // the source of the command with this token may be reused; `done` follows
  message,      // a message has arrived: data (header then payload), valid until the next poll()
  several       // as `done` for each of `bytes` commands that were posted with one token
};

struct Completion {
  Event event = Event::done;
  base::Status status = HEDDLE_DONE;
  Token token = 0;
  const std::byte* data = nullptr;  // message, 8-byte aligned
  std::uint32_t bytes = 0;          // several: how many
  std::uint32_t immediate = 0;
  std::uint32_t rank = 0;    // message: source
  std::uint32_t worker = 0;  // message: source

  // How many commands it ends.
  [[nodiscard]] std::uint32_t ends() const {
    return event == Event::several ? bytes : event == Event::done && token != 0 ? 1 : 0;
  }
};

// ---- the two interfaces -------------------------------------------------------------------------

struct PortCounters {
  std::uint64_t malformed = 0;  // arrivals that the transport found invalid
};

class TransportWorker {
 public:
  TransportWorker() = default;
  TransportWorker(const TransportWorker&) = delete;
  TransportWorker& operator=(const TransportWorker&) = delete;
  virtual ~TransportWorker() = default;

  // Accepts a prefix of the batch and returns its length (0: nothing happened; poll, then try
  // again).
  // Commands to one peer become visible to it together, so that several at once cost less than one
  // by one. post() copies an inlined message that it accepts. For each accepted command either
  // `done` is set or exactly one Event::done with its token comes from a later poll(), or counts in
  // an Event::several, whatever happens to the peer. A command to a peer known as failed is
  // accepted and completes with PEER_FAILED. If memory runs out after an accepted command, the
  // prefix ends there.
  // `alone`: the peer makes no progress, and may wait for this command. post() completes the
  // command itself, or does not accept it (if the transport cannot do that, or fails).
  [[nodiscard]] virtual std::size_t post(std::span<Command> batch) = 0;

  // Makes progress and fetches the events; returns the number of records written. Releases the
  // message data of the previous poll.
  [[nodiscard]] virtual std::size_t poll(std::span<Completion> completions) = 0;

  // The peer is dead: everything outstanding towards it completes with PEER_FAILED in later polls;
  // what arrived whole from it before may still be delivered.
  virtual void peer_failed(std::uint32_t rank) = 0;

  struct Target {
    std::uint32_t rank;
    std::uint32_t worker;
  };
  // True: that worker of a peer was closed, so a request sent to it may never be answered. False
  // also if that is not known.
  [[nodiscard]] virtual bool closed(Target target) {
    static_cast<void>(target);
    return false;
  }

  // True: nothing more comes from that worker of a peer: it was closed, and what it had sent before
  // has been taken; or its messages are refused. False also if that is not known.
  [[nodiscard]] virtual bool ended(Target target) { return closed(target) && !has_arrivals(); }

  // For Transport::wait(), see there. True: the first arrival for this worker from now on rings the
  // transport's bell.
  // False: the worker has something under way that only poll() advances.
  [[nodiscard]] virtual bool arm() { return false; }
  // Any thread, at any time: nothing has arrived since the last arm(), as far as can be seen from
  // outside.
  [[nodiscard]] virtual bool armed() const { return false; }
  // After Transport::settle(). True: poll() will find something, though perhaps not in its very
  // next call.
  [[nodiscard]] virtual bool has_arrivals() { return true; }
  // For reports about jobs that hang: messages or requests of peers have come that poll() has not
  // taken. False also if that is not known.
  [[nodiscard]] virtual bool has_untaken() { return false; }

  // Messages that were accepted and wait until a peer opens the worker that they are for.
  struct Unopened {
    Target target;
    std::uint64_t messages;
  };
  // For the same reports: writes such workers, as far as they are known, to `found`; returns how
  // many.
  [[nodiscard]] virtual std::size_t unopened(std::span<Unopened> found) {
    static_cast<void>(found);
    return 0;
  }

  [[nodiscard]] virtual PortCounters counters() const { return {}; }
};

class SessionQueues;  // session.hpp
class BarrierGates;   // gates.hpp

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;  // after all its workers

  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;

  // How it is set up, in a few words for the log.
  [[nodiscard]] virtual std::string describe() const { return capabilities().name; }
  // The name of the transport by which that rank is reached. The string lives as long as the
  // transport.
  [[nodiscard]] virtual const char* way_to(std::uint32_t rank) const {
    static_cast<void>(rank);
    return capabilities().name;
  }
  // Allocated regions of that rank may import as direct memory. The same for both of two ranks with
  // the same settings.
  [[nodiscard]] virtual bool direct_to(std::uint32_t rank) const {
    static_cast<void>(rank);
    return capabilities().direct;
  }
  // Not 0: a connection with that rank broke, or could not be made: commands to it fail with
  // PEER_FAILED, though the bootstrap may not know of a death yet, or never will. The number grows
  // in the order in which ranks were lost. Any thread.
  [[nodiscard]] virtual std::uint32_t lost(std::uint32_t rank) const {
    static_cast<void>(rank);
    return 0;
  }

  // The rank is lost(), and for a while the bootstrap has not reported a death that explains it: a
  // network is cut. Nothing arrives from that rank any more, so callers treat it as failed. The
  // transport calls Bootstrap::note_disconnected() then. Any thread.
  [[nodiscard]] virtual bool disconnected(std::uint32_t rank) const {
    static_cast<void>(rank);
    return false;
  }

  // Checks whether that rank's card fits this rank's settings. The first use of the rank checks it
  // as well; this call is for reports before any use. It connects to nobody. CONFIG, VERSION,
  // PROTOCOL: it does not, as the message says. AGAIN: its card has not arrived yet; call again.
  // PEER_FAILED.
  [[nodiscard]] virtual base::Status check_peer(std::uint32_t rank) {
    static_cast<void>(rank);
    return HEDDLE_DONE;
  }

  // `index` < capabilities().max_workers, each at most once.
  [[nodiscard]] virtual base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) = 0;

  // New zeroed memory that peers can reach best; free it with free().
  [[nodiscard]] virtual base::Result<LocalMemory> allocate(std::uint64_t bytes) = 0;
  virtual void free(const LocalMemory& memory) = 0;
  // Memory of the caller.
  [[nodiscard]] virtual base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) = 0;
  virtual void deregister(const LocalMemory& memory) = 0;
  // The same, and the transport may put the pages of this memory where peers can map them; from
  // then until the end of deregister(), which puts them back. Nobody touches the memory during
  // either call. UNSUPPORTED: it maps memory of peers, but cannot put this kind of memory there.
  [[nodiscard]] virtual base::Result<LocalMemory> adopt(void* address, std::uint64_t bytes) {
    return register_memory(address, bytes);
  }
  // Memory of the caller that only `rank` will import: it need not be made reachable for other
  // ranks. Otherwise as register_memory().
  [[nodiscard]] virtual base::Result<LocalMemory> register_for(std::uint32_t rank, void* address, std::uint64_t bytes) {
    static_cast<void>(rank);
    return register_memory(address, bytes);
  }

  // The key by which `rank` reaches memory of this rank, or this rank reaches memory of `rank`.
  [[nodiscard]] virtual MemoryKey key_for(std::uint32_t rank, const WideKey& key) const {
    static_cast<void>(rank);
    return key.front();
  }

  // Makes a region of `rank` usable. The key comes from the network: PROTOCOL if it is not valid.
  // PEER_FAILED: the peer has died.
  // AGAIN: its card has not arrived yet; call again.
  [[nodiscard]] virtual base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) = 0;
  // True: any thread may call try_import() of that rank's memory at any time, also long after it
  // got the key. So the caller may put the import off until the first access.
  [[nodiscard]] virtual bool imports_late(std::uint32_t rank) const {
    static_cast<void>(rank);
    return false;
  }
  // An import of that rank will follow: asks already for the card that it needs. Optional.
  virtual void prepare_import(std::uint32_t rank) { static_cast<void>(rank); }
  // Rings when try_import() may say something new. Null: it has to be called now and then.
  [[nodiscard]] virtual const queue::Bell<>* card_bell() const { return nullptr; }
  // The same, but waits for the card, which other ranks pass on. Not for threads that make
  // progress.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key) {
    bootstrap::CardWait wait(card_bell());
    for (;;) {
      auto memory = try_import(rank, key);
      if (memory.status() != HEDDLE_AGAIN) return memory;
      wait.take();
    }
  }
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const WideKey& key) {
    return import(rank, key_for(rank, key));
  }
  virtual void release(const RemoteMemory& memory) = 0;

  // Words that every rank of the job reaches as memory, one per rank, zeros at first; they stay
  // when ranks die. Empty: there are none, or this rank cannot reach them yet (call again).
  [[nodiscard]] virtual std::span<std::atomic<std::uint64_t>> common_words() { return {}; }

  // Queues whose commands are released by arriving data. Null: there are none, and never will be.
  // They live as long as the transport.
  [[nodiscard]] virtual SessionQueues* sessions() { return nullptr; }
  // Barriers and small reductions by the network's interface. Null: there are none, and never will
  // be. They live as long as the transport.
  [[nodiscard]] virtual BarrierGates* gates() { return nullptr; }

  // ---- sleeping: unless capabilities().sleeping is `impossible`. In this order:
  //
  //   seen = bell()
  //   each worker: poll() has found nothing, arm() says true
  //   settle()                                               once for all workers; about 2 µs
  //   each worker: has_arrivals() says false
  //   wait(seen, timeout, places)                            a place for each worker: its index
  //
  // Then wait() returns when one of these has happened since bell(): a message or a peer's transfer
  // has arrived for an armed worker among `places`, a peer has died or left, or ring() was called.
  // It also returns after the time-out, or for no reason. These do not wake it: a put to direct
  // memory (a thread that waits for a word must look at it; see arm_stores()), an arrival for a
  // worker opened meanwhile, and new room in a peer's ring or mailbox that was full (a thread that
  // has a command to post must try again). Any thread; several may wait.
  [[nodiscard]] virtual std::uint32_t bell() { return 0; }
  virtual void settle() {}
  // Words that peers change by stores into direct memory can ring, too, if those who store agree:
  // each of them pulls stores_bell(this rank) after its store. The sleeper calls arm_stores() after
  // bell(), looks at its words after settle(), and waits for queue::kStoresPlace as well. False:
  // nothing is armed, and only the time-out ends a sleep.
  [[nodiscard]] virtual bool arm_stores() { return false; }
  // Of a rank whose memory this process has imported. It lives as long as the transport. Empty: the
  // rank's threads are not woken by it.
  [[nodiscard]] virtual std::optional<queue::BellPull> stores_bell(std::uint32_t rank) {
    static_cast<void>(rank);
    return std::nullopt;
  }
  virtual void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) {
    static_cast<void>(seen);
    static_cast<void>(timeout_ns);
    static_cast<void>(places);
  }
  virtual void ring() {}
};

// One row of table.cpp per transport. Every list of transports comes from the rows: those in
// messages, in `heddle info` and in the tests.
struct TransportRow {
  const char* name;
  const char* help;
  base::Result<std::unique_ptr<Transport>> (*open)(bootstrap::Bootstrap& bootstrap,
                                                   const base::Environment& environment);
  // Whether its capabilities will have one_thread set: known before it is opened. Null: no.
  bool (*one_thread)(const base::Environment& environment) = nullptr;
  // Whether it could be opened on this machine: DONE, or why not. Null: it is always there.
  base::Status (*probe)(const base::Environment& environment) = nullptr;
  // The same, and this machine has an adapter that only this transport drives. Null: there is none.
  base::Status (*probe_own)(const base::Environment& environment) = nullptr;
  bool one_node = false;  // it reaches the ranks of its own node only
  // It opens on every machine, without a setting: the tests of the C API run over it.
  bool anywhere = false;
  bool for_tests = false;  // not for programs: the summary of `heddle info` leaves it out
};
std::span<const TransportRow> table();

// Opens by name. "NEAR,FAR": NEAR reaches the ranks of the own node, FAR the others
// (joint/joint.hpp). "fault+NAME" wraps NAME in the fault decorator. An unknown name:
// HEDDLE_ERR_CONFIG, whose message lists the transports.
base::Result<std::unique_ptr<Transport>> open(const std::string& name, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment);
// Whether that transport must be opened by the one thread that makes all its calls. False for an
// unknown name.
bool one_thread(const std::string& name, const base::Environment& environment);

// CONFIG: choose() would fail wherever the ranks are: an unknown name, or settings that contradict
// each other.
base::Status check_choice(const char* asked, const base::Config& config);
struct Choice {
  std::string name;  // for open()
  std::string why;   // for people
};
// Chooses the transport of this job: `asked`, unless it is null or "auto"; else the value of
// HEDDLE_TRANSPORT; else, by where the ranks are, the value of HEDDLE_TRANSPORTS: its first
// transport for the ranks of a node, and for those of other nodes the first of its others that all
// ranks can use. If nothing is set, these are shm, and the networks in the order of
// docs/clusters.md. The choice is the same on all ranks. If the ranks are on several nodes, the
// call is collective, whatever the settings: it waits for all ranks, by exchanges. CONFIG: the
// settings contradict each other; or, in all ranks, those of ranks differ or no named transport
// reaches other nodes. PEER_FAILED.
base::Result<Choice> choose(const char* asked, bootstrap::Bootstrap& bootstrap, const base::Environment& environment);

}  // namespace heddle::transport
