// Completions that a transport keeps for the next poll of its worker: of commands that it accepted
// and that have failed already, and of operations that have completed meanwhile. Bounded; one
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace heddle::transport {

class Backlog {
 public:
  // `reserve`: room that full() keeps free for operations that are under way already and must be
  // reported.
  explicit Backlog(std::size_t capacity, std::size_t reserve = 0) : slots_(capacity + reserve), capacity_(capacity) {}

  [[nodiscard]] bool full() const { return count_ >= capacity_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  void put(Token token, base::Status status, Event event = Event::done);
  // False: full, or the status is AGAIN: the command is not accepted. Else it is, and fails.
  bool refuse(Command& command, base::Status status) {
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
