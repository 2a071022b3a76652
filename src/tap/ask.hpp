// How a program asks a running job about itself: the job's door (bootstrap/local/door.hpp) is a
// local socket of the process that watches the job (the launcher, or rank 0's process), for
// programs of the same user. The name of the socket is abstract: it ends with the socket.
//
// A connection carries one request, a line, and its answer, text until the end.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace heddle::tap {

// The address of the door of a process of this user.
struct DoorName {
  explicit DoorName(pid_t pid);

  sockaddr_un address{};
  socklen_t length = 0;
};

// Whether the process at the other end of a local socket is this user's.
[[nodiscard]] bool is_of_this_user(int socket);
// The processes of this user that have a door, in rising order.
[[nodiscard]] std::vector<pid_t> find_doors();
// Asks, and waits for the answer. BOOTSTRAP: nobody is there, or it is another user's; TIMEOUT.
base::Result<std::string> ask_door(pid_t pid, std::string_view request, int timeout_ms);

}  // namespace heddle::tap
