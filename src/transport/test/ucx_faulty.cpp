// UCX, with faults that a test asks for. It defines the functions that may fail; the others are
// found in libucp, which it is linked with.
#include "transport/test/ucx_faulty.hpp"

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace {

// An event that a round of progress of `worker` reports.
struct Report {
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoint = nullptr;
  void* request = nullptr;  // ours; null: the endpoint is broken
  ucp_send_nbx_callback_t done = nullptr;
  void* user = nullptr;
  ucs_status_t status = UCS_OK;
};

struct Endpoint {
  ucp_worker_h worker = nullptr;
  ucp_err_handler_t on_error{};
};

std::mutex mutex;  // guards what follows; not held while UCX or the transport is called
std::map<ucp_ep_h, Endpoint> endpoints;
std::vector<Report> due;
std::vector<Report> held;  // flushes
std::set<void*> requests;  // ours
bool holds = false;
ucs_status_t next_put = UCS_OK;

template <class Function>
Function* real(Function* /*for its type*/, const char* name) {
  static void* const library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// With the mutex held.
Report report_of(ucp_ep_h endpoint, const ucp_request_param_t* param, ucs_status_t status) {
  auto* const request = new char;
  requests.insert(request);
  return {endpoints.at(endpoint).worker, endpoint, request, param->cb.send, param->user_data, status};
}

// With the mutex held: held flushes of this endpoint end; null: of all.
void let_go(ucp_ep_h endpoint) {
  std::erase_if(held, [endpoint](const Report& flush) {
    if (endpoint != nullptr && flush.endpoint != endpoint) return false;
    due.push_back(flush);
    return true;
  });
}

}  // namespace

extern "C" {

void faulty_ucp_fail_put(ucs_status_t status) {
  const std::lock_guard lock(mutex);
  next_put = status;
}

void faulty_ucp_hold_flushes(bool hold) {
  const std::lock_guard lock(mutex);
  holds = hold;
  if (!hold) let_go(nullptr);
}

unsigned faulty_ucp_held() {
  const std::lock_guard lock(mutex);
  return static_cast<unsigned>(held.size());
}

void faulty_ucp_break() {
  const std::lock_guard lock(mutex);
  for (const Report& flush : held) {
    Report broken;
    broken.worker = flush.worker;
    broken.endpoint = flush.endpoint;
    broken.status = UCS_ERR_CONNECTION_RESET;
    due.push_back(broken);
  }
}

ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* endpoint) {
  const ucs_status_t status = real(ucp_ep_create, "ucp_ep_create")(worker, params, endpoint);
  const std::lock_guard lock(mutex);
  if (status == UCS_OK) endpoints[*endpoint] = {worker, params->err_handler};
  return status;
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t* param) {
  {
    const std::lock_guard lock(mutex);
    let_go(endpoint);
    // Nobody is told any more that it is broken.
    std::erase_if(
        due, [endpoint](const Report& report) { return report.endpoint == endpoint && report.request == nullptr; });
    endpoints.erase(endpoint);
  }
  return real(ucp_ep_close_nbx, "ucp_ep_close_nbx")(endpoint, param);
}

ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h endpoint, const ucp_request_param_t* param) {
  {
    const std::lock_guard lock(mutex);
    if (holds) {
      held.push_back(report_of(endpoint, param, UCS_OK));
      return held.back().request;
    }
  }
  return real(ucp_ep_flush_nbx, "ucp_ep_flush_nbx")(endpoint, param);
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h endpoint, const void* buffer, std::size_t bytes, std::uint64_t address,
                             ucp_rkey_h key, const ucp_request_param_t* param) {
  {
    const std::lock_guard lock(mutex);
    if (next_put != UCS_OK) {
      due.push_back(report_of(endpoint, param, next_put));
      next_put = UCS_OK;
      return due.back().request;
    }
  }
  return real(ucp_put_nbx, "ucp_put_nbx")(endpoint, buffer, bytes, address, key, param);
}

unsigned ucp_worker_progress(ucp_worker_h worker) {
  std::vector<Report> now;
  std::vector<ucp_err_handler_t> on_error;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(due, [&](const Report& report) {
      if (report.worker != worker) return false;
      now.push_back(report);
      on_error.push_back(report.request == nullptr ? endpoints.at(report.endpoint).on_error : ucp_err_handler_t{});
      return true;
    });
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Report& report = now[i];
    if (report.request != nullptr) {
      report.done(report.request, report.status, report.user);
    } else {
      on_error[i].cb(on_error[i].arg, report.endpoint, report.status);
    }
  }
  return static_cast<unsigned>(now.size()) + real(ucp_worker_progress, "ucp_worker_progress")(worker);
}

void ucp_request_free(void* request) {
  {
    const std::lock_guard lock(mutex);
    if (requests.erase(request) != 0) {
      delete static_cast<char*>(request);
      return;
    }
  }
  real(ucp_request_free, "ucp_request_free")(request);
}
}
