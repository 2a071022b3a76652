// One line on stderr: "utofu emulator: process 3 (node 0 1 0 0 0 0): ...". Any thread.
//
// broken_rule(), warn() and trouble() say a line once, and of one kind at most kSaidOfKind
// different ones: a program that does something wrong does it in a loop. What was left out is
// counted, and told by say_counts().
#pragma once

#include <atomic>
#include <cstdint>

#include "utofu/settings.hpp"

namespace tofu_emulator {

// Who speaks, once that is known; before, lines have no process. `ended`: a word of the world that
// fatal() sets to 1 + process unless it is set; null: none. The references live as long as the
// process.
void set_reporter(const Settings& settings, const char* node, std::atomic<std::uint32_t>* ended);

// Ends this process by abort(), and with it the job: the world is told, so that the others' engines
// end them.
[[noreturn, gnu::cold, gnu::format(printf, 1, 2)]] void fatal(const char* format, ...);

// A rule of strict mode is broken: as fatal(), or with UTOFU_EMU_RULES=report only the line.
// Nothing in plain mode.
[[gnu::cold, gnu::format(printf, 1, 2)]] void broken_rule(const char* format, ...);

[[gnu::cold, gnu::format(printf, 1, 2)]] void warn(const char* format, ...);

// What the program is told by an error code too: in strict mode as broken_rule(), in plain mode as
// warn().
[[gnu::cold, gnu::format(printf, 1, 2)]] void trouble(const char* format, ...);

// As fatal(), but returns, for a handler of signals whose signal ends the process: no lock, no
// allocation.
[[gnu::cold, gnu::format(printf, 1, 2)]] void last_words(const char* format, ...);

inline constexpr unsigned kSaidOfKind = 8;
// At the end of the process.
void say_counts();
// How many lines were left out so far.
std::uint64_t lines_left_out();

}  // namespace tofu_emulator
