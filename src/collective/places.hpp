// This member's memory for one operation, to which the others put: counters and slots, in the arena
// or in a region of their own, and the caller's buffer, if the others can reach it.
#pragma once

#include <cstdint>
#include <functional>

#include "collective/assembly.hpp"
#include "collective/ways.hpp"

namespace heddle::collective {

class Places {
 public:
  explicit Places(Team& team) : team_(team) {}

  // Decides whether members access the caller's buffer directly, or this member copies (see
  // staged()). Call it before there is a schedule.
  void look(const Plan& plan);
  // True: the members reach the caller's buffer.
  [[nodiscard]] bool reached() const { return around_ != nullptr; }
  // True: members put to, or get from, memory here instead of the caller's buffer; this member
  // copies between the two.
  [[nodiscard]] bool staged() const { return stages_; }

  // Allocates memory for the schedule, initializes its counters, and writes their position into the
  // record. NO_MEMORY.
  base::Status take(const Plan& plan, Record* record);
  [[nodiscard]] bool taken() const { return taken_; }
  // `counters`: the final values for the schedule that ran; for Memory::late.
  void give_back(Runner::Memory memory, std::vector<std::uint64_t> counters);

  [[nodiscard]] CounterWord* counters() const;
  [[nodiscard]] std::byte* scratch() const { return scratch_; }
  // Null: staged() is false.
  [[nodiscard]] std::byte* stage() const { return stage_; }

 private:
  base::Status take_pieces(std::uint64_t counters, std::uint64_t slots, Record* record);

  Team& team_;
  engine::Region* around_ = nullptr;
  bool stages_ = false;
  bool taken_ = false;
  std::uint64_t piece_ = 0;           // offset in the arena, with the counters at its beginning
  engine::Region* region_ = nullptr;  // for the slots; null: they are in the arena
  std::byte* scratch_ = nullptr;
  std::byte* stage_ = nullptr;
};

}  // namespace heddle::collective
