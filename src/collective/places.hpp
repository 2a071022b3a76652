// This member's memory for one operation, where the others put: counters and slots in the arena or
// in a region of their own, and the caller's buffer, if they reach it.
#pragma once

#include <cstdint>
#include <functional>

#include "collective/assembly.hpp"
#include "collective/ways.hpp"

namespace heddle::collective {

class Places {
 public:
  explicit Places(Team& team) : team_(team) {}

  // Whether members put into the caller's buffer, or this one copies what comes. Before there is a
  // schedule.
  void look(const Plan& plan);
  // The members get to the caller's buffer.
  [[nodiscard]] bool reached() const { return around_ != nullptr; }
  // What is put into the caller's buffer comes by way of a place here.
  [[nodiscard]] bool staged() const { return stages_; }

  // Memory for the schedule, with its counters as they are at first, and the record's word of where
  // it is. NO_MEMORY.
  base::Status take(const Plan& plan, Record* record);
  [[nodiscard]] bool taken() const { return taken_; }
  // `counters`: of the schedule that ran, when all has come; for Memory::late.
  void give_back(Runner::Memory memory, std::vector<std::uint64_t> counters);

  [[nodiscard]] CounterWord* counters() const;
  [[nodiscard]] std::byte* scratch() const { return scratch_; }
  // Null: nothing is staged.
  [[nodiscard]] std::byte* stage() const { return stage_; }

 private:
  base::Status take_pieces(std::uint64_t counters, std::uint64_t slots, Record* record);

  Team& team_;
  engine::Region* around_ = nullptr;
  bool stages_ = false;
  bool taken_ = false;
  std::uint64_t piece_ = 0;           // of the arena, with the counters at its beginning
  engine::Region* region_ = nullptr;  // own, for the slots; null: they are in the arena
  std::byte* scratch_ = nullptr;
  std::byte* stage_ = nullptr;
};

}  // namespace heddle::collective
