// The door by which a running job is asked about itself: a local socket of the process that watches
// the job (the launcher, or rank 0's process), for programs of the same user. The name of the
// socket is abstract: it ends with the socket.
//
// A connection carries one request, a line, and its answer, text until the end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::local {

// Before the user's number, '.', and the number of the process.
inline constexpr std::string_view kDoorPrefix = "heddle.job.";

// One thread; never waits.
class Door {
 public:
  // Gives the answer to a request, now or later, once.
  using Answer = std::function<void(std::string text)>;
  using Ask = std::function<void(std::string_view request, Answer answer)>;

  // SYSTEM: there is no socket. A process has one door.
  static base::Result<std::unique_ptr<Door>> open(Ask ask);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Readable: call serve().
  [[nodiscard]] int fd() const { return epoll_.get(); }
  void serve();

 private:
  struct Guest {
    explicit Guest(ProcessFd connection) : socket(std::move(connection)) {}
    ProcessFd socket;
    std::string request;
    std::string answer;
    std::size_t sent = 0;
    bool asked = false;
    bool answered = false;
  };
  static constexpr std::size_t kMostGuests = 64;
  static constexpr std::size_t kMostRequest = 256;

  explicit Door(Ask ask) : ask_(std::move(ask)) {}
  void accept_guests();
  // False: it is to be disconnected.
  [[nodiscard]] bool hear(const std::shared_ptr<Guest>& guest);
  [[nodiscard]] static bool send(Guest& guest);
  void wait_to_send(Guest& guest) const;

  const Ask ask_;
  base::Fd epoll_;
  ProcessFd listener_;
  std::vector<std::shared_ptr<Guest>> guests_;  // shared: an answer may come after they are gone
};

// ---- the other side, for tools
// The processes of this user that have a door, in rising order.
[[nodiscard]] std::vector<pid_t> find_doors();
// Asks, and waits for the answer. BOOTSTRAP: nobody is there, or it is another user's; TIMEOUT.
base::Result<std::string> ask_door(pid_t pid, std::string_view request, int timeout_ms);

}  // namespace heddle::bootstrap::local
