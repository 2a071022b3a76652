// The thread of a rank that does what peers need of it while none of its own threads polls: it
// answers the notes to the device worker, and moves the ports on, since UCX's puts, gets and
// atomics over TCP, and the first contact over every network, are made by the target's processor.
// It sleeps on UCX's descriptors, and rings the transport's bell for workers that were armed.
//
// It runs nothing of the application's: what it brings waits in the port for the next poll of its
// owner.
//
// And it ends the connections behind these descriptors whose other end is silent for too long
// (silence.hpp); it begins a look four times in that time, and takes a few connections in each of
// its turns, so that peers do not wait for it.
//
//   port                               helper
//   quiet: UCX is armed, the
//   descriptor is watched once         an event: its owner wanted to sleep ? the bell. Else its
//                                      owner has polled since ? look again after a nap that grows,
//                                      else claim it, move it on until nothing comes, arm it: quiet
//
// Invariants
//   A port that nobody polls is quiet, or in the helper's list of those that stir: so it is never
//   forgotten (but one with orphans, which is nobody's, and none where there is no membarrier). An
//   owner that leaves something in UCX's hands that no descriptor tells of wakes the helper if the
//   port was quiet.
//   What UCX's descriptor tells stays told until UCX is armed anew: an event that comes before its
//   port is watched again is not lost.
//   `mutex_` guards watches_. It is taken before the Device's, never with it held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "queue/bell.hpp"
#include "transport/ucx/silence.hpp"

namespace heddle::transport::ucx {

class Device;
class Port;

class Helper {
 public:
  // `common`: see Bootstrap::common_bell().
  Helper(Device& device, const base::Environment& environment, const queue::Bell<>* common)
      : device_(device),
        clock_(*environment.clock),
        silence_(environment.config.number(base::Var::ucx_timeout), environment.log),
        bell_(common != nullptr ? *common : queue::Bell<>(&words_)) {}
  ~Helper() { stop(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // Once the device worker is open, whose descriptor this is. SYSTEM, NO_MEMORY.
  base::Status start(int device_descriptor);
  // Afterwards it is in nobody.
  void stop();

  // From now on, until its UCX worker ends. Returns the number for watch_again(). NO_MEMORY,
  // SYSTEM.
  base::Result<std::uint32_t> watch(Port& port, int descriptor);
  // It is no more: afterwards it is not touched. Not for one that was retired.
  void unwatch(std::uint32_t number, int descriptor);
  // By the port's owner, which has armed it. Any thread.
  void watch_again(std::uint32_t number, int descriptor) const;
  // There is something to do that no descriptor tells of: a worker was opened or closed, or is not
  // quiet any more. Any thread.
  void wake() const;

  [[nodiscard]] const queue::Bell<>& bell() const { return bell_; }

 private:
  // Port null: the device, or `gone`.
  struct Watch {
    Port* port = nullptr;
    int descriptor = -1;
    bool gone = false;
    bool stirs = false;
    std::uint64_t polls = 0;    // of its owner, when last looked at
    std::uint64_t look_at = 0;  // ns
    std::uint64_t nap = 0;      // ns
  };
  void run();
  void end_silent();
  [[nodiscard]] int pause();
  void note(std::uint32_t number);
  void look(Watch& watch, std::uint32_t number);
  void look_at_device(Watch& watch);
  void stir(Watch& watch, std::uint64_t nap);
  void settle(Watch& watch, std::uint32_t number);
  base::Status enter(const Watch& watch, std::uint32_t number) const;

  Device& device_;
  base::Clock& clock_;
  Silence silence_;                        // 0: no limit of ours
  std::uint64_t look_for_silence_at_ = 0;  // ns
  bool looking_ = false;                   // a look is under way: ...
  std::uint32_t looked_behind_ = 0;        // ... the watches before this one are done, or gathered
  queue::BellWords<> words_;               // of a bell of its own
  const queue::Bell<> bell_;
  base::Fd events_;
  base::Fd waker_;
  std::thread thread_;
  int pid_ = 0;                    // of the process that has the thread
  std::uint32_t number_ = 0;       // of the thread, for Handover
  std::atomic<bool> stop_{false};  // relaxed: wake() and join() order it
  std::mutex mutex_;
  std::deque<Watch> watches_;  // by number; the device's is 0
};

}  // namespace heddle::transport::ucx
