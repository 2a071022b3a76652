// A transport's part of a context, as far as transports share it: the Device, and its thread, the
// Helper.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "queue/bell.hpp"
#include "transport/network/directory.hpp"
#include "transport/network/losses.hpp"

namespace heddle::transport::network {

class Device;
class Port;

// The thread that serves a rank's peers while none of the rank's own threads polls: it answers the
// notes to the device worker, and makes progress on the ports, since the target's processor
// executes puts, gets and atomics over TCP, and the first contact over every network. It sleeps on
// the library's descriptors, and rings the transport's bell for workers that were armed.
//
// It runs no code of the application: what arrives waits in the port for the next poll of its
// owner.
//
// It also closes the connections behind these descriptors whose other end is silent for too long
// (losses.hpp). It begins a check four times in that time, and checks a few connections in each of
// its turns, so that peers do not wait for it. At each check ports and the directory ask again what
// peers have not answered (Port::ask_silent).
//
//   port                             helper
//   quiet: it is armed, the
//   descriptor is watched once       an event: its owner wanted to sleep ? ring the bell. Then: its
//                                    owner has polled since ? look again after a growing pause,
//                                    else claim it, make progress until nothing comes, arm it:
//                                    quiet
//
// Invariants
//   A port that nobody polls is quiet, or its watch `stirs`: so it is never forgotten (except a
//   port on which only its owner may make progress, and any port where there is no membarrier). An
//   owner that leaves something that no descriptor reports wakes the helper if the port was quiet.
//   The library's descriptor stays ready until the library is armed again: an event that comes
//   before its port is watched again is not lost.
//   `mutex_` guards watches_. It is taken before the Device's, never with it held.
class Helper {
 public:
  // How long a connection may be silent: Device::Names::timeout_ns; 0: no limit of ours.
  explicit Helper(Device& device);
  ~Helper() { stop(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // When the device worker is open, whose descriptor this is. SYSTEM.
  base::Status start(int device_descriptor);
  // Afterwards the helper is inside no port.
  void stop();

  // Watches the port from now on, until its library's queue ends. Returns the number for
  // watch_again(). NO_MEMORY, SYSTEM.
  base::Result<std::uint32_t> watch(Port& port, int descriptor);
  // The port is about to be destroyed: afterwards the helper does not touch it. Not for a retired
  // port.
  void unwatch(std::uint32_t number, int descriptor);
  // By the port's owner, which has armed it. Any thread.
  void watch_again(std::uint32_t number, int descriptor) const;
  // There is something to do that no descriptor reports: a worker was opened or closed, or is not
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
  void begin_round();
  [[nodiscard]] int pause();
  void note(std::uint32_t number);
  void look(Watch& watch, std::uint32_t number);
  void look_at_device(Watch& watch);
  // To be looked at after so many ns.
  void stir(Watch& watch, std::uint64_t nap);
  void stir_now(Watch& watch);
  void stir_later(Watch& watch);
  void make_quiet(Watch& watch, std::uint32_t number);
  base::Status enter(const Watch& watch, std::uint32_t number) const;

  Device& device_;
  base::Clock& clock_;
  Silence silence_;
  std::uint64_t look_for_silence_at_ = 0;  // ns
  bool looking_ = false;                   // a check is under way: ...
  std::uint32_t looked_behind_ = 0;        // ... the watches before this one are done, or gathered
  queue::BellWords<> words_;               // for a bell of its own
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

class Port;

// HEDDLE_NET_DEVICES for a library that names devices; empty: it chooses. "auto" is for verbs, and
// means that, too.
[[nodiscard]] inline std::string named_devices(const base::Config& config) {
  const std::string& devices = config.text(base::Var::network_devices);
  return devices == "auto" ? std::string() : devices;
}

// A transport's part of a context, as far as transports share it: the directory, which ranks were
// lost, the helper, and the ports whose workers were closed: it makes progress on these until the
// rank ends.
//
// No operation waits for its mutex: a port that asks while another thread has it gets AGAIN.
class Device {
 public:
  // The values in which the transports differ.
  struct Names {
    const char* transport;  // as in the table of transports
    const char* library;    // UCX, libfabric
    // Bytes: as HEDDLE_NETWORK_WINDOW_BYTES says; else, and at least:
    std::uint32_t usual_window;
    std::uint32_t least_window;
  };
  // CONFIG: HEDDLE_NETWORK_WINDOW_BYTES, HEDDLE_NETWORK_TIMEOUT.
  static base::Status check_settings(const base::Config& config, const Names& names);
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] bootstrap::Bootstrap& bootstrap() { return bootstrap_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  [[nodiscard]] const base::Log& log() const { return environment_.log; }
  [[nodiscard]] const Names& names() const { return names_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint32_t window() const { return window_; }
  [[nodiscard]] std::uint64_t timeout_ns() const { return timeout_ns_; }  // see Helper
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return secret_; }
  [[nodiscard]] const Agreed& agreed() const { return agreed_; }
  [[nodiscard]] std::recursive_mutex& mutex() { return mutex_; }
  // Slots of a worker: transfers, and as many messages, that may be under way.
  [[nodiscard]] std::uint32_t slots() const {
    return static_cast<std::uint32_t>(environment_.config.number(base::Var::worker_operations));
  }

  [[nodiscard]] Losses& losses() { return losses_; }
  [[nodiscard]] const Losses& losses() const { return losses_; }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return losses_.failed(rank); }
  void lose(std::uint32_t rank) { losses_.lose(rank); }
  // That worker of a peer was closed, and its rank goes on: a connection that is gone is that
  // worker's end, and no loss of the rank. Unlike Directory::known_closed() it may wait.
  [[nodiscard]] bool only_worker_ended(std::uint32_t rank, std::uint32_t worker);
  [[nodiscard]] Directory& directory() { return directory_; }
  [[nodiscard]] Helper& helper() { return helper_; }

  // Takes over a port that was retired. The messages that it has accepted still leave. When they
  // have arrived, ranks that ask are told that the port is closed, since that answer ends
  // everything that they wait for. They are told soon in any case.
  void take_over(std::unique_ptr<Port> port);
  // Ranks that ask are told that the port is closed; once. Any thread.
  void announce_closed(Port& port);

  // Any thread, often. One thread does it, the others return.
  void progress();
  struct Served {
    bool moving = false;   // something is under way that no descriptor reports
    bool learned = false;  // something arrived that workers may wait for
  };
  // By the helper, four times in the time-out: questions that were not answered are asked again.
  void begin_round();
  // By the helper: progress on the device worker and on closed ports, which are then armed.
  [[nodiscard]] Served serve();

 protected:
  // `keys`: null: regions have no keys that are asked for.
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Names& names, Courier& courier,
         KeyShelf* keys);

  // Puts this rank's card out. `version`, `provider`: of the library; `address`: of the device
  // worker. CONFIG, SYSTEM.
  base::Status publish(const std::string& version, const std::string& provider, std::span<const std::byte> address);
  // Accepted messages leave, as long as the peers make progress. At the end, without the helper.
  void leave();
  [[nodiscard]] std::vector<std::unique_ptr<Port>>& retired() { return retired_; }

 private:
  bool linger();  // true: something is still under way
  [[nodiscard]] bool arm_all();

  bootstrap::Bootstrap& bootstrap_;
  const std::uint32_t rank_;  // here, for the path of an operation
  const std::uint32_t size_;
  const base::Environment& environment_;
  const Names names_;
  const std::uint32_t window_;  // bytes
  const std::uint64_t timeout_ns_;
  const std::uint32_t max_workers_;
  const bootstrap::JobSecret secret_;
  const Agreed agreed_;
  Courier& courier_;

  // Guards the directory, the transport's regions and retired_. On the path of an operation only
  // try_lock is used. Recursive: retired ports ask for addresses.
  std::recursive_mutex mutex_;
  Losses losses_;
  Directory directory_;
  std::vector<std::unique_ptr<Port>> retired_;
  Helper helper_;  // takes mutex_
};

}  // namespace heddle::transport::network
