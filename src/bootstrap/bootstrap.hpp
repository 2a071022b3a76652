// How a process becomes a member of a job: the contract that every bootstrap fulfils.
//
// A bootstrap knows this process's rank, carries a few bytes and one file descriptor per rank
// between the processes during set-up, and reports which ranks have died. It is not for the hot
// path. All functions may be called from any thread unless noted.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "queue/bell.hpp"
#include "tap/snapshot.hpp"

namespace heddle::bootstrap {

// Random per job; membership is proved by knowing it, and packed regions carry a digest of it.
using JobSecret = std::array<std::uint8_t, 16>;

// The card that a rank publishes for its peers: a descriptor (its shared segment, or -1), its
// process and a few bytes.
struct Card {
  // publish: the caller keeps it, open as long as the bootstrap. fetch: a new descriptor, which the
  // caller closes.
  int fd = -1;
  std::int32_t pid = 0;
  std::vector<std::byte> bytes;  // at most kMaxCardBytes
  // An object shared with ranks of the same process; it lives while anybody holds it. Peers in
  // another process fetch null.
  std::shared_ptr<void> object = nullptr;
};
inline constexpr std::size_t kMaxCardBytes = 4096;
// The longest exchange of the application, and room for the bytes that the engine puts before it.
inline constexpr std::size_t kMaxExchangeBytes = (std::size_t{1} << 20) + 64;

// Bytes of the board of a node: 1024 lines of 128 bytes.
inline constexpr std::size_t kBoardBytes = std::size_t{1024} * 128;

// The object that reports the state of this rank: its context. A thread of the bootstrap calls it.
class Observed {
 public:
  // At once.
  virtual tap::Pulse pulse() = 0;
  // An encoded tap::Snapshot. The call may take a part of a second.
  virtual std::vector<std::byte> snapshot() = 0;
  // The counters so far, as tap/counters.hpp says. At once.
  virtual std::string counters() { return {}; }

 protected:
  ~Observed() = default;
};

class Bootstrap {
 public:
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual const char* name() const = 0;
  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const = 0;
  [[nodiscard]] virtual const JobSecret& secret() const = 0;

  // The machine that a rank is on: 0, 1, … in the order of their first ranks, the same numbers for
  // every rank of the job. Ranks of one machine can pass each other descriptors and share memory.
  [[nodiscard]] virtual std::uint32_t host([[maybe_unused]] std::uint32_t rank) const { return 0; }
  // For a transport that is opened on this bootstrap: other ranks change the same words by the
  // processor's instructions meanwhile, so the transport's atomics must be atomic with respect to
  // those.
  [[nodiscard]] virtual bool atomics_beside_processors() const { return false; }
  // For a transport that is opened on this bootstrap: threads sleep on this bell, and another
  // transport of the rank rings it as well; so the transport rings this bell and sleeps on it in
  // place of a bell of its own. The bell outlives the transport. Null: there is none.
  [[nodiscard]] virtual const queue::Bell<>* common_bell() const { return nullptr; }
  struct Place {
    std::uint32_t rank = 0;   // among the ranks of its machine
    std::uint32_t size = 1;   // of these
    std::uint32_t hosts = 1;  // of the job
  };
  [[nodiscard]] Place place(std::uint32_t rank) const;

  // The board of the node: kBoardBytes that the ranks of this rank's machine (host(), whatever
  // HEDDLE_NODE_RANKS divides) share from the start, by any transport; zeros at the start of the
  // job, at the start of a page. Empty: there is none, since the rank is alone on its machine or
  // the system refuses.
  // For hints only: each process of the job may write anything there at any time, what a dead one
  // wrote stays, and a forked child has it mapped, too. So use atomics, check what they say, and
  // let nothing that must be right depend on it. Any thread; each call gives the same memory. It
  // belongs to the bootstrap and is mapped until that is destroyed (inproc: until the job is). Each
  // context of a process has the board of its own job: ranks of an inproc job have the same one at
  // the same address.
  [[nodiscard]] virtual std::span<std::byte> board() { return {}; }

  // Once. Peers can fetch the card only afterwards.
  [[nodiscard]] virtual base::Status publish(const Card& card) = 0;
  // Asks for a peer's card and returns at once. AGAIN: the answer is under way, or the peer has not
  // published yet; call again. The first call sends the request, once; only later calls are needed
  // to see the answer. Any number of threads may ask for the same card: each answer goes to one of
  // them, and a thread that goes on asking causes the next request. PEER_FAILED: the peer has died
  // or left. NO_MEMORY: this process had no descriptor left for the card's; the next call asks
  // anew.
  [[nodiscard]] virtual base::Result<Card> fetch(std::uint32_t rank) = 0;
  // The same without a descriptor: fd is -1. If fetch() would open one, this call does not open it.
  [[nodiscard]] virtual base::Result<Card> fetch_bytes(std::uint32_t rank);
  // A fetch() of this rank will follow: sends its request already. Optional.
  virtual void ask_ahead(std::uint32_t rank) { static_cast<void>(rank); }
  // Rings when fetch() may say something new of any rank. Null: it has to be called now and then.
  [[nodiscard]] virtual const queue::Bell<>* card_bell() const { return nullptr; }
  // For set-up: calls fetch(), and waits until it does not return AGAIN.
  [[nodiscard]] base::Result<Card> fetch_wait(std::uint32_t rank);

  // Collective exchange, split so that the caller can make progress on other things while it waits.
  // One at a time: start, then exchange_test until it does not return AGAIN. A barrier is an
  // exchange of zero bytes. `all` becomes the contributions of all ranks in rank order, each with
  // the length its rank gave. PEER_FAILED if a rank died or left before it arrived.
  [[nodiscard]] virtual base::Status exchange_start(std::span<const std::byte> mine) = 0;
  [[nodiscard]] virtual base::Status exchange_test(std::vector<std::vector<std::byte>>* all) = 0;

  // For messages: the ranks that the exchange under way still waits for. Empty: it waits for no
  // rank, or only the launcher knows.
  [[nodiscard]] virtual std::vector<std::uint32_t> awaited() { return {}; }

  // Grows by one whenever a peer is found dead, or has left before this rank leaves, or the
  // transport has disconnected from it; every progress call reads it.
  [[nodiscard]] const std::atomic<std::uint64_t>& failure_epoch() const { return failure_epoch_; }
  [[nodiscard]] virtual bool failed(std::uint32_t rank) const = 0;
  // The transport calls it after Transport::disconnected() has become true for a rank. Any thread.
  virtual void note_disconnected() { raise_failure_epoch(); }
  // Rings `bell` after each change of the failure epoch and when an exchange has ended, from any
  // thread, until another bell is set (null: no bell). At most one.
  void set_bell(const queue::Bell<>* bell) {
    const std::lock_guard lock(bell_mutex_);
    bell_ = bell;
  }
  // The bell that set_bell() was given last.
  [[nodiscard]] const queue::Bell<>* bell() {
    const std::lock_guard lock(bell_mutex_);
    return bell_;
  }

  // ---- somebody watches the job, and says who is to blame when it hangs (diagnosis/)
  // If nothing has moved for so many seconds, that is reported; 0: never.
  [[nodiscard]] virtual std::uint64_t watch_seconds() const { return 0; }
  // Somebody can ask how this rank is, also where nobody watches.
  [[nodiscard]] virtual bool can_be_asked() const { return false; }
  // Only if somebody watches the job: reports that a thread of this rank has waited in vain for a
  // second, or for a quarter of watch_seconds(). False: the report could not be sent now.
  virtual bool note_waiting() { return true; }
  // Sets the object to ask, until another one is set (null: nobody). When observe() returns, nobody
  // asks the previous object any more.
  void observe(Observed* observed) {
    const std::lock_guard lock(observed_mutex_);
    observed_ = observed;
  }
  // Every call of progress passes through the slow path that looks for failures once.
  void call_attention() { raise_failure_epoch(); }

  // All ranks have met to leave. Optional, and before leave(): a rank that stays nevertheless need
  // not be waited for as long as it lives.
  virtual void note_all_leave() {}
  // Tells the others that this rank ends its membership in good order; afterwards only the
  // destructor may be called.
  virtual void leave() = 0;

  // Ends the job; see heddle_context_abort.
  [[noreturn]] virtual void abort(int code, const char* message) = 0;

 protected:
  void raise_failure_epoch() {
    failure_epoch_.fetch_add(1, std::memory_order_release);
    ring_bell();
  }
  // Runs function(observed), if there is one.
  template <class Function>
  void ask_observed(Function&& function) {
    const std::lock_guard lock(observed_mutex_);
    if (observed_ != nullptr) function(*observed_);
  }
  // To be called when exchange_test() has a result.
  void ring_bell() {
    const std::lock_guard lock(bell_mutex_);
    if (bell_ != nullptr) bell_->ring();
  }

 private:
  // Partner: the relaxed-then-acquire load of engine::Completer; release when raised, after
  // failed(rank) is true.
  std::atomic<std::uint64_t> failure_epoch_{0};
  // the innermost lock; held while the bell rings, so that a bell that was replaced rings no more
  std::mutex observed_mutex_;
  Observed* observed_ = nullptr;
  std::mutex bell_mutex_;
  const queue::Bell<>* bell_ = nullptr;
};

// For a thread that waits, during set-up, until fetch(), or a call that needs it, does not return
// AGAIN: begin, try, take(), try, take() …
class CardWait {
 public:
  explicit CardWait(const queue::Bell<>* bell) : bell_(bell), seen_(bell != nullptr ? bell->rings() : 0) {}

  // Sleeps until a card has come since the last look, or for a while.
  void take() {
    if (bell_ == nullptr) return nap_.take();
    bell_->wait(seen_, ns_);
    ns_ = seen_ != bell_->rings() ? kFirstNs : std::min(2 * ns_, kMostNs);
    seen_ = bell_->rings();
  }

 private:
  // If another thread was in the way of the request or of the import, nothing rings the bell; so
  // the wait has an end. In most cases the bell rings, so the pauses grow: a thousand ranks that
  // look each millisecond would leave their launcher no core.
  static constexpr std::int64_t kFirstNs = 50'000;
  static constexpr std::int64_t kMostNs = 128'000'000;
  std::int64_t ns_ = kFirstNs;

  const queue::Bell<>* bell_;
  std::uint32_t seen_;
  base::Nap nap_;
};

struct Options {
  const char* name = "auto";
  void* inproc_job = nullptr;  // inproc: the inproc::ThreadJob
  std::uint32_t rank = 0;      // inproc
};

// Opens the bootstrap that the options name; "auto": the one that HEDDLE_BOOTSTRAP names, and if
// that is auto too, the one of the launcher that started this process: local, pmix or pmi; single
// where there is no launcher.
base::Result<std::unique_ptr<Bootstrap>> open(const Options& options, const base::Environment& environment);

// The programs that may start the ranks of a job, for people who ask (`heddle info`): the
// bootstraps of table.cpp that have a launcher.

struct KnownLauncher {
  const char* name;     // of the bootstrap, as in HEDDLE_BOOTSTRAP
  const char* help;     // which commands start such jobs
  std::string library;  // what is loaded for it, and its version; empty: nothing is
  std::string problem;  // why jobs cannot be joined so here; empty: they can
};

// Loads the libraries that joining would load; asks no launcher.
std::vector<KnownLauncher> launchers();

}  // namespace heddle::bootstrap
