// A stand-in for the header of LCW's backends, lcwi.hpp: the class that a backend implements, the
// function that makes one, the logger and the counters. Written for these tests, as lcw.hpp beside
// it. LCW has no namespace stand_in.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <lcw.hpp>

namespace lcw {

class backend_base_t {
 public:
  backend_base_t();
  virtual ~backend_base_t() = default;
  virtual backend_t get_backend() const = 0;
  virtual std::string get_name() const = 0;
  virtual void initialize() = 0;
  virtual void finalize() = 0;
  virtual int64_t get_rank() = 0;
  virtual int64_t get_nranks() = 0;
  virtual device_t alloc_device(int64_t max_put_length, comp_t put_comp) = 0;
  virtual void free_device(device_t device) = 0;
  virtual bool do_progress(device_t device) = 0;
  virtual comp_t alloc_handler(handler_t handler) = 0;
  virtual void free_handler(comp_t handler) = 0;
  virtual comp_t alloc_cq() = 0;
  virtual void free_cq(comp_t completion) = 0;
  virtual bool poll_cq(comp_t completion, request_t* request) = 0;
  virtual bool send(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion,
                    void* user_context) = 0;
  virtual bool recv(device_t device, rank_t rank, tag_t tag, void* buf, int64_t length, comp_t completion,
                    void* user_context) = 0;
  virtual bool put(device_t device, rank_t rank, void* buf, int64_t length, comp_t completion, void* user_context) = 0;
  virtual tag_t get_max_tag(device_t device) = 0;
  virtual void barrier(device_t device) = 0;
  virtual void set_custom_allocator(allocator_base_t* allocator) = 0;

 protected:
  allocator_base_t* m_allocator;
};

std::unique_ptr<backend_base_t> alloc_backend(backend_t backend);

namespace pcounter {

using counter_t = std::atomic<int64_t>*;
extern const counter_t send_end;
extern const counter_t recv_end;
extern const counter_t put_end;
extern const counter_t put_signal;
extern const counter_t comp_produce;
void add(counter_t counter, int64_t value = 1);

}  // namespace pcounter

namespace stand_in {

// How often LCW itself was asked for a backend; it has none.
extern int asked;

void must(bool holds, const char* format, ...) __attribute__((format(printf, 2, 3)));
void log(int level, const char* kind, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace stand_in

}  // namespace lcw

enum { LCW_LOG_WARN, LCW_LOG_INFO };
#define LCW_Assert(...) ::lcw::stand_in::must(__VA_ARGS__)
#define LCW_Log(...) ::lcw::stand_in::log(__VA_ARGS__)
#define LCW_Warn(...) LCW_Log(LCW_LOG_WARN, "warn", __VA_ARGS__)
