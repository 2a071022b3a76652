// The door by which a running job is asked about itself: a local socket of the process that watches
// the job (the launcher, or rank 0's process), for programs of the same user (tap/ask.hpp).
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

}  // namespace heddle::bootstrap::local
