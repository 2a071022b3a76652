// UCX's calls with this transport's settings, for several parts of the ucx transport.
#pragma once

#include <cstddef>

#include "transport/network/lists.hpp"
#include "transport/ucx/library.hpp"

namespace heddle::transport::ucx {

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
