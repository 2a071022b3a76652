// A transport's part of a context, as far as transports share it: the directory, which ranks were
// lost, the helper, and the ports whose workers were closed: it makes progress on these until the
// rank ends.
//
// No operation waits for its mutex: a port that asks while another thread has it gets AGAIN.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "transport/network/directory.hpp"
#include "transport/network/helper.hpp"
#include "transport/network/losses.hpp"

namespace heddle::transport::network {

class Port;

class Device {
 public:
  // The values in which the transports differ.
  struct Names {
    const char* transport;       // as in the table of transports
    const char* library;         // UCX, libfabric
    const char* window_setting;  // variables, for errors
    const char* timeout_setting;
    std::uint32_t window;      // bytes
    std::uint64_t timeout_ns;  // see Helper
  };
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
  [[nodiscard]] std::uint32_t window() const { return names_.window; }
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
