// An adapter of the machine with one of its ports: those that the settings name, else the nearest
// to this process that works.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "transport/verbs/library.hpp"
#include "transport/verbs/wire.hpp"

namespace heddle::transport::verbs {

struct Candidate;

class Adapter {
 public:
  // The rank's adapters, at least one and at most kMostAdapters, of one kind of network:
  // HEDDLE_VERBS_DEVICE ("mlx5_0", "mlx5_0:1") or HEDDLE_VERBS_DEVICES, HEDDLE_VERBS_GID_INDEX.
  // CONFIG: there is none; the message says what there is.
  struct Opened {
    std::vector<std::unique_ptr<Adapter>> adapters;
    std::string left_out;  // devices that lack what this transport needs, and why; may be empty
  };
  static base::Result<Opened> open(const Library& library, const base::Config& config);
  // CONFIG: these settings make no sense on any machine, whatever it has.
  static base::Status check_settings(const base::Config& config);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* domain() const { return domain_; }
  [[nodiscard]] const ibv_device_attr& limits() const { return limits_; }
  [[nodiscard]] const Address& address() const { return address_; }
  [[nodiscard]] std::uint8_t port() const { return port_; }
  [[nodiscard]] std::uint32_t most_bytes() const { return most_bytes_; }  // of a transfer
  [[nodiscard]] const std::string& name() const { return name_; }         // "mlx5_0:1"

  // It has told that it does nothing any more. Any thread.
  void note_failed() { failed_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // RoCE: peers are reached by their GID.
  [[nodiscard]] bool by_gid() const { return by_gid_; }
  // The address handle attributes for a peer's port.
  [[nodiscard]] ibv_ah_attr route_to(const Address& peer) const;

 private:
  explicit Adapter(const Library& library) : call_(library.call()) {}
  // `unfit`: the name of the one that is UNSUPPORTED.
  static base::Result<std::vector<std::unique_ptr<Adapter>>> open_all(const Library& library,
                                                                      const base::Config& config,
                                                                      const std::vector<const Candidate*>& chosen,
                                                                      std::string* unfit);
  // Whether a port of the one reaches ports of the other, as far as it can be seen here.
  [[nodiscard]] bool shares_network_with(const Adapter& other) const;
  // UNSUPPORTED: it lacks something that this transport needs.
  base::Status set_up(ibv_device* device, std::uint8_t port, int gid_index);

  const Functions& call_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr limits_{};
  Address address_;
  std::uint8_t port_ = 0;
  std::uint8_t gid_index_ = 0;
  bool by_gid_ = false;
  std::atomic<bool> failed_{false};  // relaxed: ports are told under the device's mutex
  std::uint32_t most_bytes_ = 0;
  std::string name_;
};

}  // namespace heddle::transport::verbs
