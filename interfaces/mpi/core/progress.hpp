// Lanes, and how calls wait. A lane is a worker of the engine and the sends that it has not taken
// yet. A communicator uses one lane of each of its members; threads on communicators of different
// lanes share nothing.
//
// A call that waits makes progress on its lane, and nearly as often on the others, because peers
// may be waiting there for this rank. The lanes are opened with heddle_worker_options.attends for
// this. All waits go through the engine's (heddle_worker_wait_for), which spins, yields and sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>
#include <type_traits>

#include <heddle/heddle.h>
#include "mpi/core/job.hpp"

namespace heddle::mpi {

// A send that the engine did not take: the peer's credit is used up, say. Progress tries it again.
// Later sends to the same worker wait behind it, so that messages stay in order.
struct WaitingSend {
  heddle_peer target{};
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
  heddle_when when = HEDDLE_WHEN_LOCAL;
  std::atomic<int>* ended = nullptr;  // see messages/message.hpp: what the completion sets
};

struct Lane {
  heddle_worker worker{};
  std::uint32_t number = 0;
  // Sends that wait. `waiting` is read without the lock, by every send: relaxed, since a thread
  // only has to see its own earlier sends and those that it knows of by the program's own
  // synchronisation.
  std::atomic<std::size_t> waiting{0};
  std::mutex mutex;  // guards the list
  std::list<WaitingSend> sends;
};

// Something that needs steps of this process although no call of the program is about it: an
// operation of several steps (see messages/operation.hpp). Any thread that makes progress makes the
// next step.
class Stepped {
 public:
  enum class Made : std::uint8_t {
    nothing,
    moved,    // not over, but nearer to it
    finished  // it leaves the list
  };
  virtual ~Stepped() = default;
  // Makes the steps that are possible now, without waiting.
  virtual Made step() = 0;
};
// Any thread. The object stays until step() has returned `finished`, or remove_stepped().
void add_stepped(Stepped* stepped);
void remove_stepped(Stepped* stepped);

// Counts what this thread has moved: events of lanes, messages of the library's own that have
// ended. A wait during which it grows does not rest.
extern thread_local std::uint32_t t_moves [[gnu::tls_model("initial-exec")]];

// Sends that wait, of all lanes. Relaxed, as Lane::waiting.
extern std::atomic<std::size_t> g_waiting_sends;
// True: there is more to do than the engine's progress: sends that wait, operations of several
// steps.
bool has_steps();
// Makes progress on the lane, its sends that wait, and operations of several steps. Returns whether
// something happened, as far as known.
bool progress(Lane& lane);
// The same for all lanes.
bool progress_all();

// What the engine does not know of, for a thread that waits in one of the engine's calls and makes
// progress on the lane there. Returns whether something happened.
bool progress_beside(Lane& lane);

// Calls look(arg) until it does not return HEDDLE_AGAIN, and makes progress in between, also on
// what the engine does not know of. Rests as the engine's calls do. Returns what look() returned.
// `tell`: for reports, or null. `rings`: what is awaited comes by messages to the lane.
using LookAt = heddle_status (*)(void* arg);
using TellWait = void (*)(void* arg, heddle_wait_facts* facts);
heddle_status wait_in(Lane& lane, const char* call, LookAt look, TellWait tell, void* arg, bool rings = false);

// One wait of this thread that wait_in() does not make. fill(facts) sets everything that the wait
// is for, except the call. It may be called in any call of Heddle that this thread makes, until the
// object ends.
template <class Fill>
class NotedWait {
 public:
  NotedWait(heddle_worker worker, const char* call, const Fill& fill) : worker_(worker), call_(call), fill_(fill) {}
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;
  ~NotedWait() {
    if (noted_) [[unlikely]]
      static_cast<void>(heddle_wait_end(worker_, this));
  }

  // In each round that has time for it.
  void note() { noted_ = heddle_wait_note(worker_, &tell, this) == HEDDLE_DONE || noted_; }

 private:
  static void tell(void* self, heddle_wait_facts* facts) {
    const auto& wait = *static_cast<const NotedWait*>(self);
    facts->call = wait.call_;
    wait.fill_(*facts);
  }

  const heddle_worker worker_;
  const char* const call_;
  const Fill& fill_;
  bool noted_ = false;
};

// For waits of which only their worker's operations are known.
inline constexpr auto kNothingMore = [](heddle_wait_facts&) {};

// Waits until ready() is true. `call`, `fill(facts)`: for reports. What ready() throws is thrown.
template <class Ready, class Fill = decltype(kNothingMore)>
inline void wait_until(Lane& lane, Ready&& ready, const char* call = "a call of MPI", const Fill& fill = kNothingMore) {
  if (ready()) return;
  struct Wait {
    std::remove_reference_t<Ready>& ready;
    const Fill& fill;
    std::exception_ptr thrown;
    static heddle_status look(void* self) {
      auto& wait = *static_cast<Wait*>(self);
      try {
        return wait.ready() ? HEDDLE_DONE : HEDDLE_AGAIN;
      } catch (...) {  // not through the engine
        wait.thrown = std::current_exception();
        return HEDDLE_DONE;
      }
    }
    static void tell(void* self, heddle_wait_facts* facts) { static_cast<const Wait*>(self)->fill(*facts); }
  };
  Wait wait{ready, fill, nullptr};
  constexpr bool kTells = !std::is_same_v<Fill, decltype(kNothingMore)>;
  static_cast<void>(wait_in(lane, call, &Wait::look, kTells ? &Wait::tell : nullptr, &wait));
  if (wait.thrown) [[unlikely]]
    std::rethrow_exception(wait.thrown);
}

}  // namespace heddle::mpi
