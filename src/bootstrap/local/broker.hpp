// The launcher's side of a local job: keeps the cards, gathers the exchanges, tells the ranks which
// of them are gone. It has no threads and never waits: its owner polls the sockets and calls
// serve().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/local/channel.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::local {

enum class Membership {
  outside,  // has not joined (it may never join)
  joined,
  left,  // in good order
  lost   // died, or its connection failed or was closed for bad frames
};

struct Abort {
  std::uint32_t rank = 0;
  int code = 1;
  std::string message;
};

// The watcher of a job: it gets the ranks' reports about themselves.
class Watcher {
 public:
  virtual void waiting(std::uint32_t rank) = 0;
  virtual void answered(std::uint32_t rank, FrameType type, std::int32_t number,
                        std::span<const std::byte> payload) = 0;
  // A rank has joined, arrived at an exchange, left or died.
  virtual void moved() = 0;

 protected:
  ~Watcher() = default;
};

class Broker {
 public:
  // Makes the file of the node's board for a job of several ranks; the welcome passes it on.
  Broker(std::uint32_t size, const JobSecret& secret);

  // Gives the broker the launcher's end of a rank's socket pair, or a connection of another kind,
  // which may not pass descriptors: then that rank gets cards without them.
  void attach(std::uint32_t rank, ProcessFd socket, bool passes_descriptors = true) {
    seats_[rank].socket = std::move(socket);
    seats_[rank].passes_descriptors = passes_descriptors;
    touch(rank);
  }

  // `joined` is called for each process that joins, before that process learns that it has joined.
  // The function establishes everything that must be true of every member.
  void on_joined(std::function<void(std::uint32_t rank)> joined) { joined_ = std::move(joined); }

  // Before any rank joins. `seconds`: what ranks are told, see Bootstrap::watch_seconds().
  void set_watcher(Watcher* watcher, std::uint64_t seconds) {
    watcher_ = watcher;
    watch_seconds_ = seconds;
  }
  // Asks a member; its answer goes to the watcher. False: it is none, or takes nothing.
  bool ask(std::uint32_t rank, FrameType question, std::int32_t number);
  // The rank's process is one of this machine.
  [[nodiscard]] bool is_near(std::uint32_t rank) const { return seats_[rank].passes_descriptors; }

  // The file of the node's board, open as long as the broker; any thread. Not valid: there is none.
  [[nodiscard]] const base::Fd& board() const { return *board_; }

  // Closes all connections: nothing will serve them any more, and no rank may wait for an answer.
  void hang_up();

  // For poll(2): the socket (-1: closed) and what to wait for on it.
  [[nodiscard]] int socket(std::uint32_t rank) const { return seats_[rank].socket.get(); }
  [[nodiscard]] short events(std::uint32_t rank) const;
  // The ranks whose socket() or events() may have changed since the last call.
  [[nodiscard]] std::vector<std::uint32_t> take_touched();
  // Some socket looks writable, but the kernel rejects descriptors for now: call serve() again soon
  // in any case.
  [[nodiscard]] bool congested() const { return congested_ > 0; }

  // Reads and answers what this rank has sent, and writes what waits for it. Never blocks.
  void serve(std::uint32_t rank);

  // The rank's process has ended. Serves what it sent before, then tells the others unless it had
  // left.
  void ended(std::uint32_t rank);

  [[nodiscard]] Membership membership(std::uint32_t rank) const { return seats_[rank].membership; }
  [[nodiscard]] bool anybody_joined() const;
  // Has been a member at some time.
  [[nodiscard]] bool has_joined(std::uint32_t rank) const { return seats_[rank].has_joined; }
  // The process that joined: as the kernel says, if the socket has SO_PASSCRED (then 0 for a
  // process that has no number in our pid namespace), else as the process says; 0 before it joins.
  [[nodiscard]] std::int32_t pid(std::uint32_t rank) const { return seats_[rank].pid; }
  // Why the broker disconnected the rank; empty: it did not.
  [[nodiscard]] const std::string& problem(std::uint32_t rank) const { return seats_[rank].problem; }
  // Ranks that are no longer members, in the order in which they went, in good order or not. If one
  // member goes because of another, it comes after that other member in this list.
  [[nodiscard]] const std::vector<std::uint32_t>& departures() const { return departures_; }
  // The ranks that `rank` waits for in an exchange, if it is in one.
  [[nodiscard]] std::vector<std::uint32_t> awaited_by(std::uint32_t rank) const { return gather_.awaited_by(rank); }
  // The first abort asked for.
  [[nodiscard]] const std::optional<Abort>& aborted() const { return abort_; }
  // The rank has asked for one, the first or a later one.
  [[nodiscard]] bool has_aborted(std::uint32_t rank) const { return seats_[rank].has_aborted; }

 private:
  // frames; from a rank that does not take them nothing is read either
  static constexpr std::size_t kMaxWaiting = 256;
  // fetches waiting for one card
  static constexpr std::size_t kMaxWanted = std::size_t{64} * kMaxRanks;

  struct CardEntry {
    std::int32_t pid = 0;
    Outbox::Payload bytes;
    std::shared_ptr<const base::Fd> fd;
  };
  struct Seat {
    explicit Seat(std::uint32_t size) : reader(Direction::to_launcher, size) {}
    ProcessFd socket;
    Reader reader;
    Outbox outbox;
    Membership membership = Membership::outside;
    bool rejected = false;  // said hello in another version
    bool touched = false;   // in touched_
    bool has_joined = false;
    bool has_aborted = false;
    bool passes_descriptors = true;
    std::int32_t pid = 0;
    std::optional<CardEntry> card;
    std::vector<std::uint32_t> wanted_by;  // ranks whose fetch waits for the card
    std::string problem;
  };

  base::Status handle(std::uint32_t rank, Frame& frame);
  base::Status hello(std::uint32_t rank, const Frame& frame);
  base::Status publish(std::uint32_t rank, Frame& frame);
  base::Status exchange(std::uint32_t rank, Frame& frame);
  void abort(std::uint32_t rank, const Frame& frame);
  void send_card(std::uint32_t to, std::uint32_t whose);
  void gone(std::uint32_t rank, Membership how);
  void finish_round();
  void flush(std::uint32_t rank);
  void drop_outbox(std::uint32_t rank);
  void touch(std::uint32_t rank);

  std::uint32_t size_;
  JobSecret secret_;
  const std::shared_ptr<const base::Fd> board_;
  std::function<void(std::uint32_t rank)> joined_;
  Watcher* watcher_ = nullptr;
  std::uint64_t watch_seconds_ = 0;
  std::vector<Seat> seats_;
  std::vector<std::uint32_t> touched_;
  std::uint32_t congested_ = 0;  // seats whose outbox is
  Gather gather_;
  std::vector<std::uint32_t> departures_;
  std::optional<Abort> abort_;
};

}  // namespace heddle::bootstrap::local
