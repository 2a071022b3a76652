// One collective call, as the program made it.
#pragma once

#include <cstdint>

#include "collective/schedule.hpp"

namespace heddle::collective {

// Combines `bytes` of `in` into `inout`, element by element: inout = in op inout. Must be
// commutative and associative.
struct Reduction {
  void (*combine)(void* inout, const void* in, std::uint64_t bytes, const void* argument) = nullptr;
  const void* argument = nullptr;
};

// How long an operation exists.
enum class Use : std::uint8_t {
  persistent,  // the program starts it as often as it likes
  once,        // starts when it is ready; destroyed when its end was reported
  kept         // for blocking calls of one kind; belongs to the team; other buffers each time
};

struct Call {
  Operation operation = Operation::barrier;
  // Null where this rank gives or gets nothing. A broadcast uses only `receive`, at the root too.
  // send == receive: in place, for the operations where send_bytes() and receive_bytes() are equal;
  // the caller has checked that.
  const void* send = nullptr;
  void* receive = nullptr;
  // where members list their blocks: this member's lists, laid out; the operation copies them
  const Exchange* lists = nullptr;
  std::uint64_t bytes = 0;          // see Operation; where there are blocks, of each rank's block
  std::uint64_t whole = 0;          // for a piece of a longer call: the bytes of that call
  std::uint32_t root = 0;           // a rank of the team; the caller has checked it
  std::uint64_t element_bytes = 1;  // reductions; divides bytes
  Reduction reduction;              // reductions
  // distinguishes ranks that combine differently; numbers chosen by the caller
  std::uint32_t reduction_name = 0;
  // OPERATION.WAY; null: chosen (HEDDLE_COLLECTIVE_…, else by the table)
  const char* algorithm = nullptr;
  std::uint64_t segment_bytes = 0;  // 0: chosen
};

}  // namespace heddle::collective
