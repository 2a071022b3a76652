// How a rank connects to rank 0.
#pragma once

#include "bootstrap/hosted/contact.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::hosted {

struct Connection {
  ProcessFd socket;
  bool local = false;  // it passes descriptors
};

// Connects to the host that has this contact; both sides have then proved that they know the
// secret. It uses the local socket if both are on one machine, else the first address that answers.
// BOOTSTRAP: no process answers, or the one that does is not rank 0 of this job, or it refuses
// (this rank has been joined before). VERSION: it is of another version.
base::Result<Connection> connect(const Contact& contact, std::uint32_t rank);

}  // namespace heddle::bootstrap::hosted
