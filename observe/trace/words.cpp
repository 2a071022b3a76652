#include "observe/trace/words.hpp"

#include <array>

namespace heddle::observe::trace {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + " " + kUnits[unit];
}

const char* kind_text(std::uint8_t kind) {
  // The rows of wire::row_of().
  constexpr std::array kKinds = {"message", "active message", "part of a long message", "request",
                                 "answer",  "tagged message", "packet of messages",     "message of class USER"};
  return kind < kKinds.size() ? kKinds[kind] : "message of a protocol";
}

bool is_active(std::uint8_t kind) {
  constexpr std::uint8_t kActive = 1;
  constexpr std::uint8_t kRequest = 3;
  constexpr std::uint8_t kAnswer = 4;
  constexpr std::uint8_t kUser = 7;
  return kind == kActive || kind == kRequest || kind == kAnswer || kind == kUser;
}

std::string command_text(const tap::TraceRecord& record) {
  constexpr std::array kOpcodes = {"message", "put", "get", "atomic"};
  if (record.detail == tap::kTraceWord) return "credit for tagged messages";
  const bool message = record.event == tap::TraceEvent::arrived || record.detail == 0;
  const char* const what = message                           ? kind_text(record.kind)
                           : record.detail < kOpcodes.size() ? kOpcodes[record.detail]
                                                             : "command";
  const std::uint64_t bytes = record.event == tap::TraceEvent::arrived ? record.bytes : bytes_of(record);
  return std::string(what) + " " + size_text(bytes);
}

std::string rank_text(std::uint32_t rank) {
  return rank == tap::kAnyRank ? "any rank" : "rank " + std::to_string(rank);
}

}  // namespace heddle::observe::trace
