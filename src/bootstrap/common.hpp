// What bootstraps have in common: checks and helpers, one round of an exchange, nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap {

// Opens /dev/null as each of the standard streams that is closed in this process. Call it before
// any descriptor is opened: a socket with the number 1 would get what the program prints, and a
// program that closes its standard output would close the socket.
void open_standard_streams();

// From the system's random source.
base::Result<JobSecret> make_secret();

// How messages name an inherited connection: the variable that holds its descriptor, and what to
// unset for a child.
struct Inherited {
  const char* variable;
  const char* all;
};

// Makes a stream socket that the launcher has given to this process its own: marks it
// close-on-exec; it is never closed. Once per process. BOOTSTRAP: not open, not such a socket, or
// this process has claimed it before. STATE: another living process has claimed it.
base::Status claim_socket(int fd, const Inherited& words);

// A second descriptor for the same file, closed on exec; -1 gives an invalid Fd without an error.
base::Result<base::Fd> duplicate(int fd);

base::Status check_card(const Card& card);
base::Status check_exchange(std::size_t bytes);
base::Status check_rank(std::uint32_t rank, std::uint32_t size);

// The error of an exchange that `rank` was missing from, and of a fetch from a rank that is gone.
base::Status fail_missing(std::uint32_t rank);
base::Status fail_gone(std::uint32_t rank);

// "heddle: rank 3 aborts the job: MESSAGE" on standard error, in one write. Nothing if the code is
// 0 and there is no message.
void print_abort(std::uint32_t rank, int code, const char* message);

inline constexpr std::uint32_t kMaxRanks = 1024;

// The result of a round. missing: a rank that was gone before it arrived; then the round has failed
// for all ranks.
struct Gathered {
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  std::uint32_t missing = kNobody;
  std::vector<std::vector<std::byte>> all;
};

// One round of a collective exchange, for the part that brings the ranks together (the inproc job,
// the launcher).
//
// A round ends when every rank has arrived or is gone. So the living ranks always agree on the
// number of rounds, and a rank that waits in its last exchange has waited for all of them, whatever
// happened to the others. Not thread-safe.
class Gather {
 public:
  explicit Gather(std::uint32_t size) : slots_(size) {}

  // False: the rank has arrived in this round already, or is gone; nothing has changed.
  [[nodiscard]] bool arrive(std::uint32_t rank, std::vector<std::byte> bytes) {
    Slot& slot = slots_[rank];
    if (slot.arrived || slot.gone) return false;
    slot.arrived = true;
    slot.bytes = std::move(bytes);
    ++arrived_;
    ++accounted_;
    return true;
  }

  // The rank is gone for good; what it has contributed to this round still counts. Repetition is
  // harmless.
  void gone(std::uint32_t rank) {
    Slot& slot = slots_[rank];
    if (slot.gone) return;
    slot.gone = true;
    if (!slot.arrived) ++accounted_;
  }

  [[nodiscard]] bool is_gone(std::uint32_t rank) const { return slots_[rank].gone; }
  [[nodiscard]] bool has_arrived(std::uint32_t rank) const { return slots_[rank].arrived; }

  // The ranks that `rank` waits for, if it has arrived; otherwise none.
  [[nodiscard]] std::vector<std::uint32_t> awaited_by(std::uint32_t rank) const {
    std::vector<std::uint32_t> ranks;
    if (!slots_[rank].arrived) return ranks;
    for (std::uint32_t other = 0; other < slots_.size(); ++other) {
      if (!slots_[other].arrived && !slots_[other].gone) ranks.push_back(other);
    }
    return ranks;
  }

  // Some rank has arrived, and no other is still awaited.
  [[nodiscard]] bool complete() const { return arrived_ > 0 && accounted_ == slots_.size(); }

  // After complete(): takes the result and begins the next round.
  [[nodiscard]] Gathered take() {
    Gathered result;
    arrived_ = accounted_ = 0;
    for (std::uint32_t rank = 0; rank < slots_.size(); ++rank) {
      Slot& slot = slots_[rank];
      if (!slot.arrived && result.missing == Gathered::kNobody) result.missing = rank;
      result.all.push_back(std::move(slot.bytes));
      slot.bytes.clear();
      slot.arrived = false;
      if (slot.gone) ++accounted_;
    }
    if (result.missing != Gathered::kNobody) result.all.clear();
    return result;
  }

 private:
  struct Slot {
    bool arrived = false;
    bool gone = false;
    std::vector<std::byte> bytes;
  };
  std::vector<Slot> slots_;
  std::size_t arrived_ = 0;    // in this round
  std::size_t accounted_ = 0;  // arrived or gone
};

// A node: the ranks of a machine, or of a part of it where HEDDLE_NODE_RANKS says so.

// The node that each rank of the job is on: 0, 1, … in the order of their first ranks. `most`: the
// ranks of a machine are divided, in their order, into nodes of so many each; 0: they are one node.
// The same for every rank that gives the same `most`.
std::vector<std::uint32_t> nodes_of(const Bootstrap& bootstrap, std::uint64_t most);

}  // namespace heddle::bootstrap
