// Words for the records of a trace.
#pragma once

#include <cstdint>
#include <string>

#include "tap/trace_format.hpp"

namespace heddle::observe::trace {

// "8 B", "64 KiB".
std::string size_text(std::uint64_t bytes);
// Names a posted command or an arrived message, without its target: "put 8 B", "tagged message 64
// KiB".
std::string command_text(const tap::TraceRecord& record);
// The name of a message's kind: "active message".
const char* kind_text(std::uint8_t kind);
// True if a message of this kind runs a handler, or is a request of the library or its answer.
bool is_active(std::uint8_t kind);
// "rank 3"; "any rank".
std::string rank_text(std::uint32_t rank);

// Of a posted command, or a kept message.
constexpr std::uint64_t bytes_of(const tap::TraceRecord& record) {
  return record.bytes & ((std::uint64_t{1} << tap::kTraceSlotShift) - 1);
}
// For a kept message: the ticks that it took to keep it.
constexpr std::uint64_t copy_ticks(const tap::TraceRecord& kept) {
  return (kept.bytes >> tap::kTraceSlotShift) * tap::kTraceCopyUnit;
}
// For a posted command: its slot + 1; 0: no end will follow.
constexpr std::uint64_t slot_of(const tap::TraceRecord& posted) {
  return posted.bytes >> tap::kTraceSlotShift;
}

}  // namespace heddle::observe::trace
