// Completions that wait for the next poll of their worker; bounded.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace heddle::transport::shm {

class Outbox {
 public:
  // `reserve`: room that full() keeps back for what is under way already and must not fail to be reported.
  Outbox(std::size_t capacity, std::size_t reserve) : slots_(capacity + reserve), reserve_(reserve) {}

  [[nodiscard]] bool full() const { return count_ + reserve_ >= slots_.size(); }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  void put(Token token, base::Status status, Event event = Event::done);
  std::size_t drain(std::span<Completion> out);

 private:
  struct Slot {
    Token token = 0;
    base::Status status = HEDDLE_DONE;
    Event event = Event::done;
  };
  std::vector<Slot> slots_;
  std::size_t reserve_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace heddle::transport::shm
