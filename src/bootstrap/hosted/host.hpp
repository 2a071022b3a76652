// Rank 0's side where a foreign launcher has started the job: a broker of our own on a thread, like
// that of `heddle run`.
//
// Rank 0 listens on a local socket (and, for other machines, on TCP). Ranks prove that they belong
// to the job (connect.hpp); then the broker serves them. A connection that proves nothing is closed
// and counted, costs a bounded amount of memory, and the first one is reported in the log.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/hosted/connect.hpp"
#include "bootstrap/local/watchdog.hpp"

namespace heddle::bootstrap::hosted {

class Host {
 public:
  struct Options {
    std::uint32_t size = 1;
    bool other_machines = false;  // ranks may come by TCP
    base::Log log;
    // how long the destructor waits for the other ranks once all have met to leave
    std::int64_t leave_ns = 30'000'000'000;
    std::uint64_t hang_seconds = 0;  // see local::Watchdog
  };
  // Raises the process's limit of descriptors where the job needs more. SYSTEM: that is not
  // allowed, or there are no sockets, no thread, no random numbers.
  static base::Result<std::unique_ptr<Host>> open(const Options& options);
  // If leave() was called, waits until the others have left or are found dead; for no longer than
  // Options::leave_ns if all have met to leave, and then a warning names those that have not left.
  // Otherwise closes their connections at once.
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] const Contact& contact() const { return contact_; }
  // Rank 0's own connection to the broker; once.
  [[nodiscard]] ProcessFd own_end() { return std::move(own_end_); }
  // The file of the board of this machine, open as long as the host. Not valid: there is none.
  [[nodiscard]] const base::Fd& board() const { return broker_.board(); }
  // all_leave: all ranks have met to leave.
  void leave(bool all_leave) {
    left_ = true;
    all_leave_ = all_leave;
  }
  // For a forked child, where the thread does not exist: detaches it.
  void abandon() { thread_.detach(); }
  // Connections that were closed before they belonged to a rank.
  [[nodiscard]] std::uint64_t rejected() const { return rejected_.load(std::memory_order_relaxed); }

 private:
  // The number of strangers beyond the ranks: all ranks may connect at once before any of them has
  // proved anything. If one more connects, the oldest is disconnected.
  static constexpr std::size_t kMaxStrangers = 64;
  static constexpr std::int64_t kGuestTimeoutNs = 30'000'000'000;

  enum class State : int { serving, draining, ending };

  // The owner of a descriptor that poll looks at.
  struct Watched {
    enum class Kind { wake, local_listener, machines_listener, seat, process, guest, door };
    Kind kind = Kind::wake;
    std::size_t index = 0;  // the rank, or the index among the guests
  };

  // A connection that has not proved anything.
  struct Guest {
    ProcessFd socket;
    std::int64_t deadline_ns = 0;
    std::size_t got = 0;  // bytes of what is expected now
    bool local = true;
    bool answered = false;
    bool heard = false;  // poll has reported it
    Knock knock;
    Code host_nonce{};
    Code code{};
  };

  explicit Host(const Options& options);
  base::Status listen_locally();
  base::Status listen_to_machines();
  void serve();
  [[nodiscard]] bool finished();
  void name_who_stayed() const;
  [[nodiscard]] int poll_timeout(std::int64_t now) const;
  void choose_descriptors();
  void serve_seats();
  void serve_guests(std::int64_t now);
  void accept_guest(int listener, bool local, std::int64_t now);
  // False: the guest is to be disconnected, or has become a member.
  bool hear(Guest& guest);
  bool answer(Guest& guest);
  bool admit(Guest& guest);
  void reject(const char* why);

  const Options options_;
  Contact contact_;
  ProcessFd own_end_;
  base::Fd wake_;
  ProcessFd local_listener_;
  ProcessFd machines_listener_;
  bool left_ = false;
  bool all_leave_ = false;  // owned by the thread once it drains
  // Release in the destructor; partner: the acquire load of the thread, which polls `wake_`.
  std::atomic<State> state_{State::serving};
  std::atomic<std::uint64_t> rejected_{0};  // relaxed: a count
  // Owned by the thread, apart from the broker's board.
  local::Broker broker_;
  local::Watchdog watchdog_;
  std::vector<bool> seated_;
  // For ranks of this machine, a pidfd where the kernel gives one: a child that a rank has made by
  // clone(2) alone keeps the rank's connection (process_fd.hpp), even when the rank is dead. For
  // other machines only the end of the connection can be known.
  std::vector<base::Fd> processes_;
  std::vector<Guest> guests_;
  // valid ones only: poll counts all against the limit of descriptors
  std::vector<pollfd> polled_;
  std::vector<Watched> watched_;  // what each of them is
  bool pausing_ = false;          // no connection can be accepted for now
  base::SystemClock clock_;
  std::optional<base::Timeout> for_leavers_;
  std::thread thread_;
};

}  // namespace heddle::bootstrap::hosted
