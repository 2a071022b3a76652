// The result of a session as a file of JSON lines: first where, when and how it was measured, then
// a record in each line.
//
// {"heddle_bench": 2, "date": "…", "machine": "…", "cores": 2, "load": 0.3, "version": "0.1.0",
// "command": "heddle bench …"}
// {"bench": "rate", "op": "put", …}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::harness {

struct Origin {
  std::string date;     // local time with its distance from UTC
  std::string machine;  // processor and kernel
  std::string version;  // of Heddle
  std::string command;
  double cores = 0;  // that the processes may use
  double load = 0;   // of the machine at the beginning: programs that ran or were ready to
};

struct Results {
  Origin origin;
  std::vector<Record> records;
};

// Now, on this machine.
Origin origin_of(const std::string& command, std::size_t cores);

// True if other programs took so much of the machine that the figures are worse than they are.
bool was_loaded(const Origin& origin);

std::string to_json(const Results& results);

// Reads the lines, and format 1 of earlier releases, which was one object. Empty optional: *error
// says what is wrong, and in which line (format 1: which record).
std::optional<Results> results_from(std::string_view text, std::string* error);

}  // namespace heddle::bench::harness
