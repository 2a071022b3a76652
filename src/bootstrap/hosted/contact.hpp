// The contact that rank 0 gives to the others through the launcher: its addresses and the job's
// secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::hosted {

// A kernel with the namespaces of network and processes: they decide whether two processes on it
// can meet by a local socket, pass descriptors and name each other by pid.
using Machine = std::array<std::uint8_t, 16>;
base::Result<Machine> this_machine();

struct Address {
  std::string host;  // IPv4, as text
  std::uint16_t port = 0;
};

struct Contact {
  JobSecret secret{};
  Machine machine{};
  std::array<std::uint8_t, 16> socket{};  // makes the local socket's name
  std::vector<Address> addresses;         // for other machines; as many as fit, the likeliest first

  // The name of the local socket: abstract, so that nothing is left in a file system.
  [[nodiscard]] std::string socket_name() const;
};

// At most hosted::kMaxValueBytes of letters, digits and "-.:,".
std::string encode(const Contact& contact);
// BOOTSTRAP: the text is no contact. VERSION: it is of another version of Heddle.
base::Result<Contact> decode_contact(std::string_view text);

}  // namespace heddle::bootstrap::hosted
