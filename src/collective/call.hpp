// One collective call, as the program made it.
#pragma once

#include <cstdint>

#include "collective/schedule.hpp"
#include "collective/session_queue.hpp"

namespace heddle::collective {

struct Call {
  Operation operation = Operation::barrier;
  // Null where this rank gives or gets nothing. Of a broadcast only `receive`, at the root too. send == receive: in place,
  // for the operations where send_bytes() and receive_bytes() are the same; the caller has checked that.
  const void* send = nullptr;
  void* receive = nullptr;
  const Exchange* lists = nullptr;   // where members list their blocks: this one's, laid out; the operation copies it
  std::uint64_t bytes = 0;           // see Operation; of each rank's block where there are blocks
  std::uint64_t whole = 0;           // of a piece of a longer call: the bytes of that
  std::uint32_t root = 0;            // a rank of the team, checked
  std::uint64_t element_bytes = 1;   // reductions; divides bytes
  Reduction reduction;               // reductions
  std::uint32_t reduction_name = 0;  // so that ranks which combine differently are told apart; the caller's numbers
  const char* algorithm = nullptr;   // OPERATION.WAY; null: chosen (HEDDLE_COLLECTIVE_…, else by the table)
  std::uint64_t segment_bytes = 0;   // 0: chosen
};

}  // namespace heddle::collective
