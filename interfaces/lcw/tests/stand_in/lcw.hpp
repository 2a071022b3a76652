// A stand-in for LCW's public header, lcw.hpp of github.com/JiakunYan/lcw, so that the backend is
// compiled and tested where there is no LCW. It was written for these tests, from nothing but the
// names and signatures that LCW publishes, and has only those that the tests use.
#pragma once

#include <cstddef>
#include <cstdint>

// As an LCW that was configured with its MPI backend alone, and with its counters.
#define LCW_ENABLE_BACKEND_MPI
#define LCW_ENABLE_PCOUNTER

namespace lcw {

enum class backend_t { AUTO, LCI, MPI, LCI2, GEX };
enum class op_t { SEND, RECV, PUT, PUT_SIGNAL };

struct device_opaque_t;
struct comp_opaque_t;
using device_t = device_opaque_t*;
using comp_t = comp_opaque_t*;
using rank_t = int64_t;
using tag_t = int64_t;

struct request_t {
  op_t op;
  device_t device;
  rank_t rank;
  tag_t tag;
  void* buffer;
  int64_t length;
  void* user_context;
};
using handler_t = void (*)(request_t request);

struct allocator_base_t {
  virtual ~allocator_base_t() = default;
  virtual void* allocate(size_t size) = 0;
  virtual void deallocate(void* ptr) = 0;
};

void initialize(backend_t backend = backend_t::AUTO);
bool is_initialized();
void finalize();
int64_t get_rank();
int64_t get_nranks();
void set_custom_allocator(allocator_base_t* allocator);

device_t alloc_device(int64_t max_put_length = 0, comp_t put_comp = nullptr);
void free_device(device_t device);
bool do_progress(device_t device);
tag_t get_max_tag(device_t device);
void barrier(device_t device);

comp_t alloc_handler(handler_t handler);
void free_handler(comp_t handler);
comp_t alloc_cq();
void free_cq(comp_t completion);
bool poll_cq(comp_t completion, request_t* request);

bool send(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion, void* user_context);
bool recv(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion, void* user_context);
bool put(device_t device, rank_t rank, void* buf, int64_t length, comp_t completion, void* user_context);

}  // namespace lcw
