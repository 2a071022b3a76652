// The few socket calls that both sides of a meeting make.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::hosted {

// A stream socket, close-on-exec, which forked children do not keep; flags: those of socket(2). Not
// valid: errno says why.
ProcessFd make_socket(int domain, int flags = 0);

// An abstract name: it ends with its socket, and is not in a file system.
class LocalName {
 public:
  explicit LocalName(const std::string& name);
  [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t length() const { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

// True: the kernel says that the process that connected to this local socket, or listens at its
// other end, is this user's.
bool same_user(int socket);
// That process's number; 0: not known.
pid_t process_of(int socket);

// TCP: small frames are sent at once, and a machine that is gone is noticed within half a minute.
void prepare_stream(int socket);

}  // namespace heddle::bootstrap::hosted
