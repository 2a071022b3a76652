// libibverbs and its objects: the adapters of a rank, completion queues, the states of queue pairs.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"
#include "transport/network/symbols.hpp"
#include "transport/verbs/wire.hpp"

namespace heddle::transport::verbs {

// libibverbs, opened at run time: one binary serves machines with and without it. The fast
// functions (work requests, completions) are in the objects of its drivers; the header calls them.

struct Functions : network::Symbols {
  using Symbols::Symbols;
  decltype(&::ibv_fork_init) fork_init = find("ibv_fork_init");
  decltype(&::ibv_get_device_list) get_device_list = find("ibv_get_device_list");
  decltype(&::ibv_free_device_list) free_device_list = find("ibv_free_device_list");
  decltype(&::ibv_get_device_name) get_device_name = find("ibv_get_device_name");
  decltype(&::ibv_open_device) open_device = find("ibv_open_device");
  decltype(&::ibv_close_device) close_device = find("ibv_close_device");
  decltype(&::ibv_query_device) query_device = find("ibv_query_device");
  decltype(&::ibv_query_port) query_port = find("ibv_query_port");
  decltype(&::ibv_query_gid) query_gid = find("ibv_query_gid");
  decltype(&::ibv_alloc_pd) alloc_pd = find("ibv_alloc_pd");
  decltype(&::ibv_dealloc_pd) dealloc_pd = find("ibv_dealloc_pd");
  decltype(&::ibv_reg_mr) reg_mr = find("ibv_reg_mr");
  decltype(&::ibv_dereg_mr) dereg_mr = find("ibv_dereg_mr");
  decltype(&::ibv_get_async_event) get_async_event = find("ibv_get_async_event");
  decltype(&::ibv_ack_async_event) ack_async_event = find("ibv_ack_async_event");
  decltype(&::ibv_event_type_str) event_type_str = find("ibv_event_type_str");
  decltype(&::ibv_create_comp_channel) create_comp_channel = find("ibv_create_comp_channel");
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = find("ibv_destroy_comp_channel");
  decltype(&::ibv_get_cq_event) get_cq_event = find("ibv_get_cq_event");
  decltype(&::ibv_ack_cq_events) ack_cq_events = find("ibv_ack_cq_events");
  decltype(&::ibv_create_cq) create_cq = find("ibv_create_cq");
  decltype(&::ibv_destroy_cq) destroy_cq = find("ibv_destroy_cq");
  decltype(&::ibv_create_srq) create_srq = find("ibv_create_srq");
  decltype(&::ibv_destroy_srq) destroy_srq = find("ibv_destroy_srq");
  decltype(&::ibv_create_qp) create_qp = find("ibv_create_qp");
  decltype(&::ibv_modify_qp) modify_qp = find("ibv_modify_qp");
  decltype(&::ibv_destroy_qp) destroy_qp = find("ibv_destroy_qp");
  decltype(&::ibv_create_ah) create_ah = find("ibv_create_ah");
  decltype(&::ibv_destroy_ah) destroy_ah = find("ibv_destroy_ah");
  decltype(&::ibv_wc_status_str) wc_status_str = find("ibv_wc_status_str");
};

class Library {
 public:
  // Opens it, once per process and name; it stays open. CONFIG: there is none, or it lacks a
  // function.
  static base::Result<const Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }

 private:
  Library() = default;
  Functions call_{nullptr};
};

struct Candidate;

// An adapter of the machine with one of its ports: those that the settings name, else the nearest
// to this process that works.
class Adapter {
 public:
  // The rank's adapters, at least one and at most kMostAdapters, of one kind of network:
  // HEDDLE_NET_DEVICES ("mlx5_0", "mlx5_0:1,mlx5_1", "auto"), HEDDLE_VERBS_GID_INDEX.
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
  [[nodiscard]] const PortAddress& address() const { return address_; }
  [[nodiscard]] std::uint8_t port() const { return port_; }
  [[nodiscard]] std::uint32_t most_bytes() const { return most_bytes_; }  // of a transfer
  [[nodiscard]] const std::string& name() const { return name_; }         // "mlx5_0:1"

  // It has told that it does nothing any more. Any thread.
  void note_failed() { failed_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // RoCE: peers are reached by their GID.
  [[nodiscard]] bool by_gid() const { return by_gid_; }
  // The address handle attributes for a peer's port.
  [[nodiscard]] ibv_ah_attr route_to(const PortAddress& peer) const;

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
  PortAddress address_;
  std::uint8_t port_ = 0;
  std::uint8_t gid_index_ = 0;
  bool by_gid_ = false;
  std::atomic<bool> failed_{false};  // relaxed: ports are told under the device's mutex
  std::uint32_t most_bytes_ = 0;
  std::string name_;
};

// Reports, by one descriptor, that completions have come into any of the queues that are open on
// it.
class CompletionChannel {
 public:
  CompletionChannel() = default;
  ~CompletionChannel() { close(); }
  CompletionChannel(const CompletionChannel&) = delete;
  CompletionChannel& operator=(const CompletionChannel&) = delete;

  base::Status open(const Adapter& adapter);
  void close();
  [[nodiscard]] bool is_open() const { return channel_ != nullptr; }
  [[nodiscard]] ibv_comp_channel* get() const { return channel_; }
  [[nodiscard]] int descriptor() const { return channel_->fd; }
  // Forgets what it has reported.
  void drain();

 private:
  const Adapter* adapter_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
};

// A completion queue that can be slept on.
class CompletionQueue {
 public:
  CompletionQueue() = default;
  ~CompletionQueue() { close(); }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // `owner`: that events name; null: the device.
  base::Status open(const Adapter& adapter, const CompletionChannel& channel, std::uint32_t entries, void* owner);
  void close();
  [[nodiscard]] ibv_cq* get() const { return queue_; }
  // How many were written.
  [[nodiscard]] std::size_t poll(std::span<ibv_wc> out) const {
    const int count = ibv_poll_cq(queue_, static_cast<int>(out.size()), out.data());
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  // The channel reports the next completion. The caller polls once more afterwards.
  void arm() const { ibv_req_notify_cq(queue_, 0); }

 private:
  const Adapter* adapter_ = nullptr;
  ibv_cq* queue_ = nullptr;
};

// The states of a reliable connected (RC) queue pair, which both kinds of pairs go through: those
// of Port, and the second ones of Stripes.

// A new pair goes to INIT, and can be connected afterwards. False: the adapter rejects.
[[nodiscard]] bool prepare_pair(const Adapter& adapter, ibv_qp* pair);
// It goes to RTR and RTS, connected to the pair `number` of the port at `address`. AGAIN: not now,
// for a passing reason. SYSTEM.
[[nodiscard]] base::Status connect_pair(const Adapter& adapter, ibv_qp* pair, std::uint32_t number,
                                        const PortAddress& address);
// It goes to ERR: nothing leaves or arrives any more, and requests end with errors.
void stop_pair(const Adapter& adapter, ibv_qp* pair);

}  // namespace heddle::transport::verbs
