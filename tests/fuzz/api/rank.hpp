// One rank of the API fuzzer: the sources of its arguments, its calls, and the checks of each call.
//
// Pointers are always valid: memory that the library is told to read or write belongs to the fuzzer
// for the whole round, or the call has to refuse it before it reads it (a length that no region
// has, that no message may have). Values are arbitrary.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "heddle/heddle.h"
#include "trace.hpp"

namespace heddle::tests::api {

// no region that operations reach is longer
inline constexpr std::size_t kBig = std::size_t{1} << 20;
inline constexpr std::size_t kBuffers = 4;
// claimed messages may stay so while somebody waits
inline constexpr std::int64_t kKeptNs = 500'000'000;

// The meeting place of the two ranks without the library: in this process's memory, or in a page
// that two processes share.
struct Meeting {
  struct Side {
    // how often; release, partner: the acquire load in Rank::meet
    alignas(64) std::atomic<std::uint64_t> came;
    // at an even and an odd meeting: who is one ahead does not overwrite
    std::atomic<std::int64_t> said[2];
    std::atomic<std::uint32_t> workers;  // it has opened so many
  };
  Side sides[2];
};

struct Settings {
  std::uint64_t seed = 1;
  std::uint64_t calls = 20'000;
  std::uint64_t round = 2'000;  // calls in the life of one context, where the ranks are threads
  double seconds = 0;           // 0: no limit
  std::string transport = "shm";
  heddle_sharing mode = HEDDLE_SHARING_DEFAULT;  // default: any, at random
  // seconds that a call may last longer than the time it was given
  double patience = 60;
  bool verbose = false;
};

enum class When {
  anywhere,  // waits for nobody
  turn,      // may wait for the peer, which meanwhile serves
  // collective: both ranks call it, with arguments from the random numbers that they share
  together
};

class Rank;
struct Row {
  const char* name;
  When when;
  void (*run)(Rank&);
};
[[nodiscard]] std::vector<Row> table();
std::vector<Row> context_rows();
std::vector<Row> transfer_rows();
std::vector<Row> message_rows();
std::vector<Row> team_rows();
std::vector<Row> operation_rows();

template <class Handle>
struct Owned {
  Handle handle;
  std::uint64_t context;
};

template <class Handle>
struct Pool {
  std::vector<Owned<Handle>> live;
  std::vector<Handle> closed;

  void add(Handle handle, std::uint64_t context) { live.push_back({handle, context}); }
  void remove(Handle handle) {
    std::erase_if(live, [&](const auto& one) { return one.handle.id == handle.id; });
    closed.push_back(handle);
  }
  void left(std::uint64_t context) {
    for (const auto& one : live) {
      if (one.context == context) closed.push_back(one.handle);
    }
    std::erase_if(live, [&](const auto& one) { return one.context == context; });
  }
};

// A team and an operation of it, as both ranks list them in the same order.
struct Team {
  heddle_team handle;  // {0}: this rank is no member
  std::uint32_t members;
};
struct Operation {
  heddle_collective handle;
  std::size_t team;  // its place in Rank::teams
  bool persistent;
  bool running;  // this rank has begun a run, and has not been told its end
};

struct Receive {
  heddle_receive receive{};
  std::uint64_t worker = 0;  // on which it was posted or claimed
  bool posted = false;
  bool claimed = false;
};

class Rank {
 public:
  Rank(const Settings& settings, std::uint32_t number, Meeting& meeting, Trace& trace);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void round(heddle_context context, std::uint64_t seed, std::uint64_t calls, std::int64_t until_ns);

  // ---- random values ----
  base::Random& random() { return together_ ? shared_ : own_; }
  std::uint64_t below(std::uint64_t bound) { return random().below(bound); }
  bool chance(unsigned percent) { return below(100) < percent; }
  std::uint64_t odd();  // a boundary, or any bits
  std::uint32_t odd32() { return static_cast<std::uint32_t>(odd()); }
  std::size_t fitting(std::size_t most = kBig);  // small ones more often
  // beyond kBig no region has room
  std::size_t transfer_bytes() { return chance(75) ? fitting() : odd(); }
  template <class T>
  T enumeration(int most) {  // mostly one of 0 … most
    return static_cast<T>(chance(85) ? static_cast<int>(below(static_cast<std::uint64_t>(most) + 1)) : odd_int());
  }
  int odd_int() { return static_cast<int>(odd32()); }
  std::int64_t
  // at most a few milliseconds, told to the watchdog; where the call has to fail at once also
  // FOREVER
  timeout();
  std::uint32_t rank_number();
  heddle_peer peer();
  std::size_t struct_size(std::size_t own);  // for structures with a size
  // Buffer `which`, so that `bytes` bytes end where the memory ends; where that is not to be looked
  // at, any address in it.
  std::byte* data(std::size_t which, std::size_t bytes, std::size_t align = 1);
  // Memory for parameters of exactly this length, zeroed, the fuzzer's until the round has ended.
  void* keep(std::size_t bytes);
  template <class T>
  T* keep_one(const T& value) {
    return static_cast<T*>(std::memcpy(keep(sizeof(T)), &value, sizeof(T)));
  }
  template <class T>
  T* maybe_null(T* pointer) {
    return chance(3) && !careful ? nullptr : pointer;
  }
  const heddle_completion* completion();

  // ---- handles: mostly live ones; else closed, null, of another type, or any bits, and then the
  // call must fail ----
  template <class Handle>
  Handle pick(Pool<Handle>& pool, unsigned live_percent = 88) {
    if (!pool.live.empty() && chance(live_percent)) return pool.live[below(pool.live.size())].handle;
    return bad(pool);
  }
  template <class Handle>
  Handle bad(Pool<Handle>& pool) {
    bad_ = true;
    switch (below(4)) {
      case 0:
        if (!pool.closed.empty()) return pool.closed[below(pool.closed.size())];
        return Handle{0};
      case 1:
        return Handle{0};
      case 2:
        return Handle{another_type(kind_of(Handle{}))};
      default:
        return Handle{odd() | 1};  // no handle is odd
    }
  }
  heddle_remote remote(bool aligned = false);
  [[nodiscard]] bool together() const { return together_; }
  [[nodiscard]] bool inside() const { return inside_; }
  [[nodiscard]] heddle_context main() const { return main_; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  std::uint64_t owner(heddle_worker worker) const;
  [[nodiscard]] const Settings& settings() const { return settings_; }

  // ---- calls ----
  template <class Result, class... Parameters, class... Arguments>
  Result call(const char* name, Result (*fn)(Parameters...), Arguments... arguments) {
    Entry& entry = trace_.begin(name);
    ((entry.text.add(", "), entry.text.add(arguments)), ...);
    const std::int64_t given = std::exchange(timeout_, 0);
    const bool must_fail = std::exchange(bad_, false);
    const bool was_inside = inside_;
    trace_.start(given);
    if constexpr (std::is_void_v<Result>) {
      fn(arguments...);
      trace_.end(entry, 0);
      check(name, 0, false);
    } else if constexpr (std::is_pointer_v<Result>) {
      Result result = fn(arguments...);
      trace_.end(entry, 0);
      if (result == nullptr) trace_.wrong("null was returned");
      check(name, 0, false);
      inside_ = was_inside;
      return result;
    } else {
      Result result = fn(arguments...);
      inside_ = was_inside;
      trace_.end(entry, static_cast<long long>(result));
      check(name, static_cast<int>(result), must_fail);
      return result;
    }
  }
  void not_bad() { bad_ = false; }  // the call may succeed although a handle was none
  void allow(std::int64_t ns) { timeout_ = ns; }
  [[noreturn]] void wrong(const char* what) { trace_.wrong(what); }
  // Waits for the other rank, serving meanwhile; what it said at this meeting.
  std::int64_t meet(std::int64_t say = 0);
  void serve();
  void opened_worker() { meeting_.sides[number_].workers.fetch_add(1, std::memory_order_relaxed); }
  // Until nothing of the worker is outstanding, so that a wait for it ends. False: not here, in a
  // handler or callback.
  bool settle(heddle_worker worker);
  // A random call from a handler or callback, now and then; `waits`: also those that have to refuse
  // to wait there.
  static void from_inside(bool waits);

  Pool<heddle_context> contexts;  // the job's is not in it, but for calls that do not close it
  Pool<heddle_inproc_job> jobs;
  Pool<heddle_worker> workers;
  Pool<heddle_region> regions;
  Pool<heddle_remote_region> remotes;
  // unpacked from bytes that were tampered with: asked and released, not used
  Pool<heddle_remote_region> doubtful;
  Pool<heddle_counter> counters;
  Pool<heddle_partitioned> partitioned;
  Pool<heddle_team> side_teams;  // of contexts of one rank
  Pool<heddle_collective> side_operations;
  std::vector<std::vector<std::byte>> packed;  // valid names of regions
  std::deque<Receive> receives;
  std::vector<Team> teams;  // both ranks list the same
  std::vector<Operation> operations;
  std::vector<heddle_collective> closed_operations;
  std::vector<heddle_team> closed_teams;
  // records of this rank's, on the job's context, that nothing has used
  std::vector<std::byte*> offers;
  // nothing that is wrong at the root alone: the other member would wait for a good call, rightly
  bool careful = false;
  bool differ = false;  // the next collective call has arguments that the ranks do not agree on

  void forget(heddle_context context);  // all that was opened on it is closed now
  // together: waits for its run's end, and takes it off the list if that closes it
  void finish(std::size_t operation);
  void drop_operation(std::size_t operation);  // together: finishes and frees it
  void drop_team(std::size_t team);

 private:
  std::uint64_t another_type(int kind);
  static int kind_of(heddle_context) { return 0; }
  static int kind_of(heddle_inproc_job) { return 1; }
  static int kind_of(heddle_worker) { return 2; }
  static int kind_of(heddle_region) { return 3; }
  static int kind_of(heddle_remote_region) { return 4; }
  static int kind_of(heddle_counter) { return 5; }
  static int kind_of(heddle_partitioned) { return 6; }
  static int kind_of(heddle_team) { return 7; }
  static int kind_of(heddle_collective) { return 8; }
  void check(const char* name, int status, bool must_fail);
  void prepare();
  void step(const std::vector<Row>& rows);
  void drop_claimed();
  void run(const Row& row, bool together);
  void leave();

  const Settings& settings_;
  std::uint32_t number_;
  Meeting& meeting_;
  Trace& trace_;
  base::Random own_;
  base::Random shared_;
  heddle_context main_{};
  bool together_ = false;
  bool inside_ = false;
  bool bad_ = false;
  std::int64_t timeout_ = 0;
  std::uint64_t met_ = 0;
  std::uint64_t planned_ = 0;
  std::unique_ptr<std::byte[]> buffers_[kBuffers];
  std::vector<std::unique_ptr<std::byte[]>> kept_;
};

// Names the function once: as text for the report, and as the function.
#define HEDDLE_CALL(rank, function, ...) (rank).call(#function, function __VA_OPT__(, ) __VA_ARGS__)

}  // namespace heddle::tests::api
