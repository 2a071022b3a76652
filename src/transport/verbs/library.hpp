// libibverbs, opened at run time: one binary serves machines with and without it. The fast
// functions (work requests, completions) are in the objects of its drivers; the header calls them.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "base/error.hpp"
#include "transport/network/symbols.hpp"

namespace heddle::transport::verbs {

struct Functions : network::Symbols {
  using Symbols::Symbols;
  decltype(&::ibv_fork_init) fork_init = find("ibv_fork_init");
  decltype(&::ibv_get_device_list) get_device_list = find("ibv_get_device_list");
  decltype(&::ibv_free_device_list) free_device_list = find("ibv_free_device_list");
  decltype(&::ibv_get_device_name) get_device_name = find("ibv_get_device_name");
  decltype(&::ibv_open_device) open_device = find("ibv_open_device");
  decltype(&::ibv_close_device) close_device = find("ibv_close_device");
  decltype(&::ibv_query_device) query_device = find("ibv_query_device");
  decltype(&::ibv_query_port) query_port = find("ibv_query_port");
  decltype(&::ibv_query_gid) query_gid = find("ibv_query_gid");
  decltype(&::ibv_alloc_pd) alloc_pd = find("ibv_alloc_pd");
  decltype(&::ibv_dealloc_pd) dealloc_pd = find("ibv_dealloc_pd");
  decltype(&::ibv_reg_mr) reg_mr = find("ibv_reg_mr");
  decltype(&::ibv_dereg_mr) dereg_mr = find("ibv_dereg_mr");
  decltype(&::ibv_get_async_event) get_async_event = find("ibv_get_async_event");
  decltype(&::ibv_ack_async_event) ack_async_event = find("ibv_ack_async_event");
  decltype(&::ibv_event_type_str) event_type_str = find("ibv_event_type_str");
  decltype(&::ibv_create_comp_channel) create_comp_channel = find("ibv_create_comp_channel");
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = find("ibv_destroy_comp_channel");
  decltype(&::ibv_get_cq_event) get_cq_event = find("ibv_get_cq_event");
  decltype(&::ibv_ack_cq_events) ack_cq_events = find("ibv_ack_cq_events");
  decltype(&::ibv_create_cq) create_cq = find("ibv_create_cq");
  decltype(&::ibv_destroy_cq) destroy_cq = find("ibv_destroy_cq");
  decltype(&::ibv_create_srq) create_srq = find("ibv_create_srq");
  decltype(&::ibv_destroy_srq) destroy_srq = find("ibv_destroy_srq");
  decltype(&::ibv_create_qp) create_qp = find("ibv_create_qp");
  decltype(&::ibv_modify_qp) modify_qp = find("ibv_modify_qp");
  decltype(&::ibv_destroy_qp) destroy_qp = find("ibv_destroy_qp");
  decltype(&::ibv_create_ah) create_ah = find("ibv_create_ah");
  decltype(&::ibv_destroy_ah) destroy_ah = find("ibv_destroy_ah");
  decltype(&::ibv_wc_status_str) wc_status_str = find("ibv_wc_status_str");
};

class Library {
 public:
  // Opens it, once per process and name; it stays open. CONFIG: there is none, or it lacks a
  // function.
  static base::Result<const Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }

 private:
  Library() = default;
  Functions call_{nullptr};
};

}  // namespace heddle::transport::verbs
