// The door by which other programs ask a job, and the counters that it answers with.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/local/broker.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::local {

// The door by which a running job is asked about itself: a local socket of the process that watches
// the job (the launcher, or rank 0's process), for programs of the same user (tap/ask.hpp).
//
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

// Asks all ranks of a job for their counters (tap/counters.hpp), for people who look at the
// job while it runs. Requests that come while a round is under way share the next round.
//
// No threads, never waits: its owner calls tick() when due_ns() says so.
class CountRounds {
 public:
  CountRounds(Broker& broker, std::uint32_t size) : broker_(broker), texts_(size) {}

  using Answer = std::function<void(std::string text)>;
  // Called once, with the texts of the ranks that answered in time, in the order of their numbers.
  void ask(Answer told, std::uint64_t now);
  // When tick() is to be called at the latest; 0: no time.
  [[nodiscard]] std::uint64_t due_ns() const { return until_ns_; }
  void tick(std::uint64_t now);
  void answered(std::uint32_t rank, std::int32_t number, std::span<const std::byte> text);

 private:
  // How long ranks may take: a rank that is stopped never answers.
  static constexpr std::uint64_t kRoundNs = 500'000'000;

  void begin(std::uint64_t now);
  [[nodiscard]] bool all_have_answered() const;

  Broker& broker_;
  struct Text {
    bool here = false;
    std::string text;
  };
  std::vector<Text> texts_;  // by rank
  std::int32_t number_ = 0;  // of the round
  std::uint64_t until_ns_ = 0;
  std::vector<Answer> now_;
  std::vector<Answer> next_;
};

}  // namespace heddle::bootstrap::local
