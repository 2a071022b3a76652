// What every transport does with a command that it does not execute: finds its fault, and keeps the
// completion of one that has failed for the next poll.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "transport/command.hpp"
#include "transport/transport.hpp"

namespace heddle::transport {

// Finds the faults of a command, with the same messages for all transports. A transport calls these
// functions when a command is not the usual one.

// A put, get or atomic has remote memory, and stays within it. ARGUMENT, RANGE.
[[nodiscard]] base::Status check_remote(const Command& command);

// An atomic operation is one, on as many bytes as it says, and its word, in a region that begins at
// `begin`, is aligned. After check_remote(). ARGUMENT, SIZE, ALIGNMENT.
[[nodiscard]] base::Status check_atomic(const Command& command, std::uint64_t begin);

// A message has a header that the contract allows, and fits into `most` bytes. SIZE; `transport`:
// its name, for the message.
[[nodiscard]] base::Status check_message(const Command& command, std::uint32_t most, const char* transport);

// PROTOCOL: the bytes to be imported are no key of a region of that rank. Often the ranks' settings
// differ.
[[nodiscard]] base::Status fail_key(const char* transport, std::uint32_t rank);

// Completions that a transport keeps for the next poll of its worker: of commands that it accepted
// and that have failed already, and of operations that have completed meanwhile. Bounded; one
// thread.
class Backlog {
 public:
  // `reserve`: room that full() keeps free for operations that are under way already and must be
  // reported.
  explicit Backlog(std::size_t capacity, std::size_t reserve = 0) : slots_(capacity + reserve), capacity_(capacity) {}

  [[nodiscard]] bool full() const { return count_ >= capacity_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  void put(Token token, base::Status status, Event event = Event::done);
  // False: full, or the status is AGAIN: the command is not accepted. Else it is, and fails.
  bool reject(Command& command, base::Status status) {
    if (status == HEDDLE_AGAIN || full()) return false;
    command.source_free = true;
    put(command.token, status);
    return true;
  }
  std::size_t drain(std::span<Completion> out);

 private:
  struct Slot {
    Token token = 0;
    base::Status status = HEDDLE_DONE;
    Event event = Event::done;
  };
  std::vector<Slot> slots_;
  std::size_t capacity_;  // without the reserve
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace heddle::transport
