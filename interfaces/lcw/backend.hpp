// LCW's backend "heddle".
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <lcwi.hpp>

#include "lcw/device.hpp"

namespace heddle::for_lcw {

class Backend final : public ::lcw::backend_base_t {
 public:
  // LCW's own enumeration has no name for backends from elsewhere.
  [[nodiscard]] ::lcw::backend_t get_backend() const override { return ::lcw::backend_t::AUTO; }
  [[nodiscard]] std::string get_name() const override { return "heddle"; }
  void initialize() override;
  // Frees the devices that the program has not freed, and waits until all ranks have come here. The
  // process stays a member of the job until it exits, so that it may initialize again.
  void finalize() override;
  int64_t get_rank() override;
  int64_t get_nranks() override;
  ::lcw::device_t alloc_device(int64_t max_put_length, ::lcw::comp_t put_comp) override;
  void free_device(::lcw::device_t device) override;
  bool do_progress(::lcw::device_t device) override;
  bool send(::lcw::device_t device, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buf, int64_t length,
            ::lcw::comp_t completion, void* user_context) override;
  bool recv(::lcw::device_t device, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buf, int64_t length,
            ::lcw::comp_t completion, void* user_context) override;
  bool put(::lcw::device_t device, ::lcw::rank_t rank, void* buf, int64_t length, ::lcw::comp_t completion,
           void* user_context) override;
  ::lcw::tag_t get_max_tag(::lcw::device_t device) override;
  void barrier(::lcw::device_t device) override;
  ::lcw::comp_t alloc_handler(::lcw::handler_t handler) override;
  void free_handler(::lcw::comp_t handler) override;
  ::lcw::comp_t alloc_cq() override;
  void free_cq(::lcw::comp_t completion) override;
  bool poll_cq(::lcw::comp_t completion, ::lcw::request_t* request) override;
  void set_custom_allocator(::lcw::allocator_base_t* allocator) override;

 private:
  JoinedJob* job_ = nullptr;
  std::mutex mutex_;  // over devices_, and the order in which workers get their numbers
  std::vector<WorkerDevice*> devices_;
};

}  // namespace heddle::for_lcw
