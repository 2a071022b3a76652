// One collective call, as the program made it.
#pragma once

#include <cstdint>

#include "collective/schedule.hpp"

namespace heddle::collective {

// Combines `bytes` of `in` into `inout`: inout = in op inout, element by element. Commutative and
// associative.
struct Reduction {
  void (*combine)(void* inout, const void* in, std::uint64_t bytes, const void* argument) = nullptr;
  const void* argument = nullptr;
};

// How long an operation is there.
enum class Use : std::uint8_t {
  persistent,  // started by the program as often as it likes
  once,        // starts when it is ready, gone when its end was told
  kept         // of blocking calls of one kind: the team's, with other buffers each time
};

struct Call {
  Operation operation = Operation::barrier;
  // Null where this rank gives or gets nothing. Of a broadcast only `receive`, at the root too.
  // send == receive: in place, for the operations where send_bytes() and receive_bytes() are the
  // same; the caller has checked that.
  const void* send = nullptr;
  void* receive = nullptr;
  // where members list their blocks: this one's, laid out; the operation copies it
  const Exchange* lists = nullptr;
  std::uint64_t bytes = 0;          // see Operation; of each rank's block where there are blocks
  std::uint64_t whole = 0;          // of a piece of a longer call: the bytes of that
  std::uint32_t root = 0;           // a rank of the team, checked
  std::uint64_t element_bytes = 1;  // reductions; divides bytes
  Reduction reduction;              // reductions
  // so that ranks which combine differently are told apart; the caller's numbers
  std::uint32_t reduction_name = 0;
  // OPERATION.WAY; null: chosen (HEDDLE_COLLECTIVE_…, else by the table)
  const char* algorithm = nullptr;
  std::uint64_t segment_bytes = 0;  // 0: chosen
};

}  // namespace heddle::collective
