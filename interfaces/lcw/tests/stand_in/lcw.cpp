// The functions of lcw.hpp, which ask the backend, and what lcwi.hpp has for backends.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include <lcwi.hpp>

namespace lcw {
namespace {

std::unique_ptr<backend_base_t> g_backend;

backend_base_t& backend() {
  LCW_Assert(g_backend != nullptr, "LCW is not initialized\n");
  return *g_backend;
}

struct malloc_allocator_t final : allocator_base_t {
  void* allocate(size_t size) override { return std::malloc(size); }
  void deallocate(void* ptr) override { std::free(ptr); }
};

}  // namespace

backend_base_t::backend_base_t() {
  static malloc_allocator_t allocator;
  m_allocator = &allocator;
}

void initialize(backend_t which) {
  LCW_Assert(g_backend == nullptr, "LCW is initialized already\n");
  g_backend = alloc_backend(which);
  backend().initialize();
}

bool is_initialized() {
  return g_backend != nullptr;
}

void finalize() {
  backend().finalize();
  g_backend.reset();
}

int64_t get_rank() {
  return backend().get_rank();
}

int64_t get_nranks() {
  return backend().get_nranks();
}

void set_custom_allocator(allocator_base_t* allocator) {
  backend().set_custom_allocator(allocator);
}

device_t alloc_device(int64_t max_put_length, comp_t put_comp) {
  return backend().alloc_device(max_put_length, put_comp);
}

void free_device(device_t device) {
  backend().free_device(device);
}

bool do_progress(device_t device) {
  return backend().do_progress(device);
}

tag_t get_max_tag(device_t device) {
  return backend().get_max_tag(device);
}

void barrier(device_t device) {
  backend().barrier(device);
}

comp_t alloc_handler(handler_t handler) {
  return backend().alloc_handler(handler);
}

void free_handler(comp_t handler) {
  backend().free_handler(handler);
}

comp_t alloc_cq() {
  return backend().alloc_cq();
}

void free_cq(comp_t completion) {
  backend().free_cq(completion);
}

bool poll_cq(comp_t completion, request_t* request) {
  return backend().poll_cq(completion, request);
}

bool send(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion, void* user_context) {
  return backend().send(device, rank, tag, buf, length, completion, user_context);
}

bool recv(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion, void* user_context) {
  return backend().recv(device, rank, tag, buf, length, completion, user_context);
}

bool put(device_t device, rank_t rank, void* buf, int64_t length, comp_t completion, void* user_context) {
  return backend().put(device, rank, buf, length, completion, user_context);
}

namespace pcounter {
namespace {

std::atomic<int64_t> g_counters[5];

}  // namespace

const counter_t send_end = &g_counters[0];
const counter_t recv_end = &g_counters[1];
const counter_t put_end = &g_counters[2];
const counter_t put_signal = &g_counters[3];
const counter_t comp_produce = &g_counters[4];

void add(counter_t counter, int64_t value) {
  counter->fetch_add(value, std::memory_order_relaxed);
}

}  // namespace pcounter

namespace stand_in {

void must(bool holds, const char* format, ...) {
  if (holds) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::abort();
}

void log(int level, const char* kind, const char* format, ...) {
  if (level != LCW_LOG_WARN) return;
  std::fprintf(stderr, "LCW: %s: ", kind);
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
}

}  // namespace stand_in
}  // namespace lcw
