// This transport's part of a context: what the ports of one rank share. UCX's context, the
// directory, the regions, which ranks were lost, the helper, and the ports whose workers were
// closed: it makes progress on these until the rank ends.
//
// No operation waits for its mutex: a port that asks while another thread has it gets AGAIN.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/ucx/directory.hpp"
#include "transport/ucx/helper.hpp"
#include "transport/ucx/losses.hpp"
#include "transport/ucx/regions.hpp"

namespace heddle::transport::ucx {

class Port;

class Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] bootstrap::Bootstrap& bootstrap() { return bootstrap_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  [[nodiscard]] const base::Log& log() const { return environment_.log; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint32_t window() const { return window_; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return secret_; }
  [[nodiscard]] const Agreed& agreed() const { return agreed_; }
  [[nodiscard]] std::recursive_mutex& mutex() { return mutex_; }

  [[nodiscard]] Losses& losses() { return losses_; }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return losses_.failed(rank); }
  void lose(std::uint32_t rank) { losses_.lose(rank); }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] Directory& directory() { return directory_; }
  [[nodiscard]] Helper& helper() { return helper_; }

  // UCX reports connections that break, and can cut them off. UCX 1.13 does neither over its own
  // shared memory: there only the bootstrap reports who has died.
  [[nodiscard]] bool recovers() const { return recovers_; }
  [[nodiscard]] ucs_status_t connect(ucp_worker_h worker, const void* address, ucp_err_handler_cb_t broken, void* arg,
                                     ucp_ep_h* endpoint) const;
  // The error for a worker that UCX does not give.
  [[nodiscard]] base::Status no_worker(ucs_status_t status) const;

  [[nodiscard]] base::Result<std::unique_ptr<Port>> open_port(std::uint32_t index);
  // The port was retired: ranks that ask are told that it is closed; what it has accepted still
  // leaves.
  void take_over(std::unique_ptr<Port> port);

  // Any thread, often. One thread does it, the others return.
  void progress();
  struct Served {
    bool moving = false;   // something is under way that no descriptor reports
    bool learned = false;  // something arrived that workers may wait for
  };
  // By the helper: progress on the device worker and on closed ports, which are then armed.
  [[nodiscard]] Served serve();

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library);
  base::Status set_up();
  base::Status open_context();
  base::Status configure(ucp_config_t* config);
  base::Status publish();
  base::Status probe(const void* address);
  void end_probe(ucp_worker_h worker);
  bool linger();  // true: something is still under way
  [[nodiscard]] bool arm_all();
  void leave();
  struct Flush {
    ucp_worker_h worker;
    void* request;
    bool ended;
  };
  Flush begin_flush(ucp_worker_h worker) const;
  bool has_ended(Flush* flush) const;
  std::vector<Flush> flush_all();
  void take_down();
  void bury(void* object);

  bootstrap::Bootstrap& bootstrap_;
  const std::uint32_t rank_;  // here, for the path of an operation
  const std::uint32_t size_;
  const base::Environment& environment_;
  const Library& library_;
  const Functions& call_;
  const std::uint32_t max_workers_;
  const std::uint32_t window_;
  const bootstrap::JobSecret secret_;
  const Agreed agreed_;
  ucp_context_h context_ = nullptr;
  bool recovers_ = true;
  bool buried_ = false;  // a worker stays until the process ends, and so must the context

  // Guards the directory, the regions and closed_. On the path of an operation only try_lock is
  // used. Recursive: closed ports ask for addresses.
  std::recursive_mutex mutex_;
  Losses losses_;
  Regions regions_;
  Directory directory_;
  std::vector<std::unique_ptr<Port>> closed_;
  Helper helper_;  // takes mutex_
};

}  // namespace heddle::transport::ucx
