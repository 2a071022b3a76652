// What several parts of the transport over UCX use: its calls with the settings that they have
// here.
#pragma once

#include <cstddef>
#include <vector>

#include "transport/ucx/library.hpp"

namespace heddle::transport::ucx {

using Bytes = std::vector<std::byte>;

// A list that takes no memory until it has more than `count` items.
template <class T>
void make_room(std::vector<T>* list, std::size_t count) {
  if (list->capacity() < count) list->reserve(2 * count);
}

// DONE: UCX has said yes. Otherwise what its answer means here, without a message.
base::Status meaning_of(ucs_status_t status);

// Null where there is none.
ucs_status_t create_worker(const Functions& call, ucp_context_h context, ucp_worker_h* worker);
// From now on `receive` gets the messages with that number. SYSTEM.
base::Status listen(const Functions& call, ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t receive, void* arg);
// SYSTEM. The descriptor that tells of what comes.
base::Status find_descriptor(const Functions& call, ucp_worker_h worker, int* descriptor);
// SYSTEM.
base::Status find_address(const Functions& call, ucp_worker_h worker, Bytes* address);

// A message that UCX reads until `sent` is called, if a request comes back; null: it has left.
// `more`: attributes.
inline void* send_message(const Functions& call, ucp_ep_h endpoint, unsigned id, const void* data, std::size_t bytes,
                          ucp_send_nbx_callback_t sent, void* user, std::uint32_t more = 0) {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS | more;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = sent;
  params.user_data = user;
  return call.am_send_nbx(endpoint, id, nullptr, 0, data, bytes, &params);
}

// Closes it without its peer. A request that tells when it has ended, or null.
void* force_close(const Functions& call, ucp_ep_h endpoint);

}  // namespace heddle::transport::ucx
