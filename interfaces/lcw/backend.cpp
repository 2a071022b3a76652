#include "lcw/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "lcw/completion.hpp"
#include "lcw/process.hpp"

namespace heddle::for_lcw {

void Backend::initialize() {
  Idle::set_enabled(flag("LCW_HEDDLE_YIELD", true));
  job_ = join();
  job_->allocator.store(m_allocator, std::memory_order_release);
  LCW_Log(LCW_LOG_INFO, "init", "Heddle: rank %u of %u\n", job_->rank, job_->size);
}

void Backend::finalize() {
  while (!devices_.empty()) free_device(devices_.front()->handle());
  suspend();
  job_ = nullptr;
}

int64_t Backend::get_rank() {
  return job_->rank;
}

int64_t Backend::get_nranks() {
  return job_->size;
}

::lcw::device_t Backend::alloc_device(int64_t max_put_length, ::lcw::comp_t put_comp) {
  // Puts of any length arrive: memory is found for each.
  if (max_put_length < 0) fail("alloc_device with max_put_length %lld", static_cast<long long>(max_put_length));
  const std::lock_guard lock(mutex_);
  devices_.reserve(devices_.size() + 1);
  devices_.push_back(new WorkerDevice(job_, take_worker_number(), put_comp));
  return devices_.back()->handle();
}

void Backend::free_device(::lcw::device_t device) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(devices_.begin(), devices_.end(), WorkerDevice::of(device));
    if (found == devices_.end()) fail("free_device: %p is no device that is open", static_cast<void*>(device));
    devices_.erase(found);
  }
  delete WorkerDevice::of(device);
}

bool Backend::do_progress(::lcw::device_t device) {
  return WorkerDevice::of(device)->progress();
}

bool Backend::send(::lcw::device_t device, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buf, int64_t length,
                   ::lcw::comp_t completion, void* user_context) {
  return WorkerDevice::of(device)->send(rank, tag, buf, length, CompletionObject::of(completion), user_context);
}

bool Backend::recv(::lcw::device_t device, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buf, int64_t length,
                   ::lcw::comp_t completion, void* user_context) {
  return WorkerDevice::of(device)->receive(rank, tag, buf, length, CompletionObject::of(completion), user_context);
}

bool Backend::put(::lcw::device_t device, ::lcw::rank_t rank, void* buf, int64_t length, ::lcw::comp_t completion,
                  void* user_context) {
  return WorkerDevice::of(device)->put(rank, buf, length, CompletionObject::of(completion), user_context);
}

::lcw::tag_t Backend::get_max_tag(::lcw::device_t /*device*/) {
  return WorkerDevice::kMaxTag;
}

void Backend::barrier(::lcw::device_t device) {
  WorkerDevice::of(device)->barrier();
}

::lcw::comp_t Backend::alloc_handler(::lcw::handler_t handler) {
  if (handler == nullptr) fail("alloc_handler: the handler is null");
  return (new CompletionHandler(handler))->comp();
}

void Backend::free_handler(::lcw::comp_t handler) {
  delete static_cast<CompletionHandler*>(CompletionObject::of(handler));
}

::lcw::comp_t Backend::alloc_cq() {
  return (new RequestQueue)->comp();
}

void Backend::free_cq(::lcw::comp_t completion) {
  delete RequestQueue::of(completion);
}

bool Backend::poll_cq(::lcw::comp_t completion, ::lcw::request_t* request) {
  if (RequestQueue::of(completion)->pop(request)) {
    Idle::reset();
    return true;
  }
  Idle::found_nothing();
  return false;
}

void Backend::set_custom_allocator(::lcw::allocator_base_t* allocator) {
  if (allocator == nullptr) fail("set_custom_allocator: the allocator is null");
  m_allocator = allocator;
  job_->allocator.store(allocator, std::memory_order_release);
}

namespace {

bool built_in(::lcw::backend_t backend) {
  switch (backend) {
#ifdef LCW_ENABLE_BACKEND_MPI
    case ::lcw::backend_t::MPI:
#endif
#ifdef LCW_ENABLE_BACKEND_LCI
    case ::lcw::backend_t::LCI:
#endif
#ifdef LCW_ENABLE_BACKEND_LCI2
    case ::lcw::backend_t::LCI2:
#endif
#ifdef LCW_ENABLE_BACKEND_GEX
    case ::lcw::backend_t::GEX:
#endif
    case ::lcw::backend_t::AUTO:
      return true;
    default:
      return false;
  }
}

// Whether the program gets this backend when it asks for `backend`.
bool wanted(::lcw::backend_t backend) {
  if (flag("LCW_HEDDLE_ALWAYS", false)) return true;
  if (backend == ::lcw::backend_t::AUTO) {
    const char* choice = std::getenv("LCW_BACKEND_AUTO");
    return choice == nullptr || std::string_view(choice) == "heddle";
  }
  if (built_in(backend)) return false;
  // Without this the program would end: LCW has nothing to give.
  LCW_Warn("this LCW was built without the backend that the program asks for; Heddle takes its place\n");
  return true;
}

}  // namespace

}  // namespace heddle::for_lcw

namespace lcw {

// LCW's own function, which heddle_lcw.cmake renames.
std::unique_ptr<backend_base_t> alloc_backend_of_lcw(backend_t backend);

std::unique_ptr<backend_base_t> alloc_backend(backend_t backend) {
  if (heddle::for_lcw::wanted(backend)) return std::make_unique<heddle::for_lcw::Backend>();
  return alloc_backend_of_lcw(backend);
}

}  // namespace lcw
