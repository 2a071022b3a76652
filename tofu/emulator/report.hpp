// What the emulator says: messages on standard error, and the last error of a thread.
//
// One line on stderr: "utofu emulator: process 3 (node 0 1 0 0 0 0): ...". Any thread.
//
// broken_rule(), warn() and trouble() print a line once, and at most kSaidOfKind different lines of
// one kind: a program repeats its mistakes in loops. Omitted lines are counted, and say_counts()
// prints the counts.
#pragma once

#include <atomic>
#include <cstdint>

#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {

// Sets the process that reports; earlier lines name no process. `ended`: a word of the world that
// fatal() sets to 1 + process unless it is already set; null: none. The references must live as
// long as the process.
void set_reporter(const EmulatorSettings& settings, const char* node, std::atomic<std::uint32_t>* ended);

// Ends this process by abort(), and with it the job: it notes this in the world, and the others'
// engines then end their processes.
[[noreturn, gnu::cold, gnu::format(printf, 1, 2)]] void fatal(const char* format, ...);

// A broken rule of strict mode: like fatal(), or only the line with UTOFU_EMU_RULES=report. In
// plain mode does nothing.
[[gnu::cold, gnu::format(printf, 1, 2)]] void broken_rule(const char* format, ...);

[[gnu::cold, gnu::format(printf, 1, 2)]] void warn(const char* format, ...);

// For an error that an error code reports too: like broken_rule() in strict mode, like warn() in
// plain mode.
[[gnu::cold, gnu::format(printf, 1, 2)]] void trouble(const char* format, ...);

// Like fatal(), but returns: for a signal handler, whose signal then ends the process. No lock, no
// allocation.
[[gnu::cold, gnu::format(printf, 1, 2)]] void last_words(const char* format, ...);

inline constexpr unsigned kSaidOfKind = 8;
// Called at the end of the process.
void say_counts();
// The number of lines omitted so far.
std::uint64_t lines_left_out();

// The error for utofu_get_last_error: the one that a call of this thread returned last. NOT_FOUND,
// BUSY and NOT_COMPLETED are answers, not errors.

// Records the error and returns it.
[[gnu::cold]] int failed(int status);

// The same for a status that may also be UTOFU_SUCCESS.
inline int noted(int status) {
  return status == 0 ? 0 : failed(status);
}

}  // namespace tofu_emulator
