// `heddle run --metrics PORT`: serves the job's counters by HTTP on the loopback interface, for
// Prometheus and any other client that asks for /metrics.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

// One thread; never waits.
class MetricsPort {
 public:
  // Gives the text of the counters, now or later, once.
  using Answer = std::function<void(std::string text)>;
  using Ask = std::function<void(Answer answer)>;

  // The clients that may ask, all of this machine. `user`: the user who runs the job, and root.
  enum class For { user, all };

  // The descriptors of the port itself: a listener and an epoll. Each guest needs one more, up to
  // `most_guests`, at least 1. If one more guest comes, the oldest is disconnected.
  static constexpr std::size_t kDescriptors = 2;
  static constexpr std::size_t kMostGuests = 32;

  // Port 0: the kernel picks one. SYSTEM: it cannot be had, with a message for the user.
  static base::Result<std::unique_ptr<MetricsPort>> open(std::uint16_t port, For whom, std::size_t most_guests,
                                                         Ask ask);
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Readable: call serve().
  [[nodiscard]] int fd() const { return epoll_.get(); }
  void serve();

 private:
  struct Guest {
    explicit Guest(base::Fd connection) : socket(std::move(connection)) {}
    base::Fd socket;
    std::string request;
    std::string answer;
    std::size_t sent = 0;
    bool asked = false;
    bool head_only = false;
  };
  static constexpr std::size_t kMostRequest = 8192;

  MetricsPort(For whom, std::size_t most_guests, Ask ask)
      : for_(whom), most_guests_(most_guests), ask_(std::move(ask)) {}
  void accept_guests();
  // False: it is to be disconnected.
  [[nodiscard]] bool hear(const std::shared_ptr<Guest>& guest);
  void reply(const std::shared_ptr<Guest>& guest);
  void tell(Guest& guest, std::string_view status, std::string_view type, const std::string& body) const;
  [[nodiscard]] static bool send(Guest& guest);

  const For for_;
  const std::size_t most_guests_;
  const Ask ask_;
  base::Fd epoll_;
  base::Fd listener_;
  std::uint16_t port_ = 0;
  std::vector<std::shared_ptr<Guest>> guests_;  // shared: an answer may come after they are gone
};

// The user at the other end of a TCP connection of this machine.

// The user of the process at the other end of this connection from 127.0.0.1, by the kernel's table
// of TCP sockets: asked for that one socket or, where the kernel cannot be asked so, read. Empty:
// it has gone, or the kernel does not tell. Takes one descriptor meanwhile.
std::optional<uid_t> user_at_other_end(int connection);

// For tests: the two ways.
std::optional<uid_t> ask_user_at_other_end(int connection);
std::optional<uid_t> read_user_at_other_end(int connection);

}  // namespace heddle::tools::run
