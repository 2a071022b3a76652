// Messages of a port as UCX brings them: passed to network::Incoming.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>

#include "base/error.hpp"

namespace heddle::transport::ucx {

class Port;

class Receive {
 public:
  // Before anything can arrive: UCX calls the functions below from now on. SYSTEM.
  static base::Status listen(Port& port);

 private:
  using Function = ucs_status_t(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param);
  static Function on_message;
  static Function on_other_message;
  static Function on_bundle;
  static Function on_credit;
};

}  // namespace heddle::transport::ucx
