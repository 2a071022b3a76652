#include "transport/ucx/common.hpp"

namespace heddle::transport::ucx {

base::Status meaning_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return HEDDLE_DONE;
    case UCS_ERR_NO_MEMORY:
      return HEDDLE_ERR_NO_MEMORY;
    case UCS_ERR_NO_RESOURCE:
      return HEDDLE_AGAIN;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_INVALID_ADDR:
      return HEDDLE_ERR_SYSTEM;
    default:
      return HEDDLE_ERR_PEER_FAILED;  // UCX's many errors of a connection
  }
}

ucs_status_t create_worker(const Functions& call, ucp_context_h context, ucp_worker_h* worker) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = call.worker_create(context, &params, worker);
  if (status != UCS_OK) *worker = nullptr;
  return status;
}

base::Status listen(const Functions& call, ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t receive,
                    void* arg) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.cb = receive;
  handler.arg = arg;
  const ucs_status_t status = call.worker_set_am_recv_handler(worker, &handler);
  if (status == UCS_OK) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "UCX takes no handler: %s", call.status_string(status));
}

base::Status find_descriptor(const Functions& call, ucp_worker_h worker, int* descriptor) {
  const ucs_status_t status = call.worker_get_efd(worker, descriptor);
  if (status == UCS_OK) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no descriptor to sleep on: %s", call.status_string(status));
}

base::Status find_address(const Functions& call, ucp_worker_h worker, Bytes* copy) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = call.worker_get_address(worker, &address, &bytes);
  if (status != UCS_OK) return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no address: %s", call.status_string(status));
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  copy->assign(begin, begin + bytes);
  call.worker_release_address(worker, address);
  return HEDDLE_DONE;
}

void* force_close(const Functions& call, ucp_ep_h endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = call.ep_close_nbx(endpoint, &params);
  return UCS_PTR_IS_ERR(request) ? nullptr : request;
}

}  // namespace heddle::transport::ucx
