// libucp: its functions, opened at run time, and its calls with the settings of this transport.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "transport/network/lists.hpp"
#include "transport/network/symbols.hpp"

namespace heddle::transport::ucx {

// libucp, opened at run time: one binary serves machines with and without it.

// The functions that the transport calls, typed by the header, so that a library of another shape
// does not compile.
struct Functions : network::Symbols {
  using Symbols::Symbols;
  decltype(&::ucp_get_version) get_version = find("ucp_get_version");
  decltype(&::ucp_config_read) config_read = find("ucp_config_read");
  decltype(&::ucp_config_modify) config_modify = find("ucp_config_modify");
  decltype(&::ucp_config_print) config_print = find("ucp_config_print");
  decltype(&::ucp_config_release) config_release = find("ucp_config_release");
  decltype(&::ucp_init_version) init_version = find("ucp_init_version");
  decltype(&::ucp_cleanup) cleanup = find("ucp_cleanup");
  decltype(&::ucp_worker_create) worker_create = find("ucp_worker_create");
  decltype(&::ucp_worker_destroy) worker_destroy = find("ucp_worker_destroy");
  decltype(&::ucp_worker_get_address) worker_get_address = find("ucp_worker_get_address");
  decltype(&::ucp_worker_release_address) worker_release_address = find("ucp_worker_release_address");
  decltype(&::ucp_worker_progress) worker_progress = find("ucp_worker_progress");
  decltype(&::ucp_worker_get_efd) worker_get_efd = find("ucp_worker_get_efd");
  decltype(&::ucp_worker_arm) worker_arm = find("ucp_worker_arm");
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = find("ucp_worker_set_am_recv_handler");
  decltype(&::ucp_worker_flush_nbx) worker_flush_nbx = find("ucp_worker_flush_nbx");
  decltype(&::ucp_ep_create) ep_create = find("ucp_ep_create");
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = find("ucp_ep_close_nbx");
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = find("ucp_ep_flush_nbx");
  decltype(&::ucp_ep_rkey_unpack) ep_rkey_unpack = find("ucp_ep_rkey_unpack");
  decltype(&::ucp_rkey_destroy) rkey_destroy = find("ucp_rkey_destroy");
  decltype(&::ucp_rkey_pack) rkey_pack = find("ucp_rkey_pack");
  decltype(&::ucp_rkey_buffer_release) rkey_buffer_release = find("ucp_rkey_buffer_release");
  decltype(&::ucp_mem_map) mem_map = find("ucp_mem_map");
  decltype(&::ucp_mem_unmap) mem_unmap = find("ucp_mem_unmap");
  decltype(&::ucp_mem_query) mem_query = find("ucp_mem_query");
  network::Quiet<decltype(&::ucp_am_send_nbx)>::Type am_send_nbx = find("ucp_am_send_nbx");
  decltype(&::ucp_am_data_release) am_data_release = find("ucp_am_data_release");
  network::Quiet<decltype(&::ucp_put_nbx)>::Type put_nbx = find("ucp_put_nbx");
  network::Quiet<decltype(&::ucp_get_nbx)>::Type get_nbx = find("ucp_get_nbx");
  decltype(&::ucp_atomic_op_nbx) atomic_op_nbx = find("ucp_atomic_op_nbx");
  decltype(&::ucp_request_check_status) request_check_status = find("ucp_request_check_status");
  decltype(&::ucp_request_free) request_free = find("ucp_request_free");
  decltype(&::ucs_status_string) status_string = find("ucs_status_string");
};

class Library {
 public:
  // Opens it, once per process and name; it stays open, since it has threads of its own. CONFIG:
  // there is none, it lacks a function, or it is older than 1.13.
  static base::Result<const Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] bool at_least(unsigned major, unsigned minor) const {
    return major_ > major || (major_ == major && minor_ >= minor);
  }

  // While it lives, UCX logs nothing for this thread's calls: for attempts that may fail.
  class Hush {
   public:
    Hush();
    ~Hush();
    Hush(const Hush&) = delete;
    Hush& operator=(const Hush&) = delete;
  };

  // Objects of UCX that cannot be destroyed: they wait for a peer that does nothing, and UCX 1.13
  // aborts the program when operations that they have begun are cut off. Nobody uses them any more;
  // they stay until the process ends.
  static void bury(void* object);

 private:
  Library() = default;
  base::Status load(const std::string& name);

  Functions call_{nullptr};
  unsigned major_ = 0;
  unsigned minor_ = 0;
  std::string version_;
};

// UCX's calls with this transport's settings, for several parts of the ucx transport.

using network::Bytes;
using network::List;
using network::make_room;
using network::Pool;

// The status that UCX's answer stands for, without a message. DONE: UCS_OK.
base::Status meaning_of(ucs_status_t status);

// The worker is null if UCX gives none.
ucs_status_t create_worker(const Functions& call, ucp_context_h context, ucp_worker_h* worker);
// From now on UCX passes messages with that number to `receive`. SYSTEM.
base::Status listen(const Functions& call, ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t receive, void* arg);
// The descriptor that reports arrivals. SYSTEM.
base::Status find_descriptor(const Functions& call, ucp_worker_h worker, int* descriptor);
// SYSTEM.
base::Status find_address(const Functions& call, ucp_worker_h worker, Bytes* address);

// Sends a message. If a request comes back, UCX reads the message until it calls `sent`; null: it
// has left.
inline void* send_message(const Functions& call, ucp_ep_h endpoint, unsigned id, const void* data, std::size_t bytes,
                          ucp_send_nbx_callback_t sent, void* user) {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = sent;
  params.user_data = user;
  return call.am_send_nbx(endpoint, id, nullptr, 0, data, bytes, &params);
}

// Closes the endpoint without its peer. Returns a request that tells when that has ended, or null.
void* force_close(const Functions& call, ucp_ep_h endpoint);

}  // namespace heddle::transport::ucx
