// Cache lines that threads of different lanes have written, in words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sharing/watch.hpp"

namespace heddle::sharing {

// A thread and the phase it was in: one record each. Threads of one lane are partners, which hand
// lines to each other; a line that two lanes write is shared.
struct Part {
  std::uint32_t lane = 0;
  std::uint32_t phase = 0;
  std::unique_ptr<Record> record = std::make_unique<Record>();
};

// A line that several lanes have written in each phase. A line that they write once by chance, such
// as memory that the allocator hands from one to the other, is no finding.
struct Finding {
  std::string where;                 // heap, or which mapping, and the address
  std::vector<std::uint32_t> lanes;  // that wrote it
  double writes = 0;                 // per operation of one lane
  std::vector<std::string> places;   // function (file:line) of some of the writes
};

// Lines that are written only by sources in the folder `others` are not ours; "": all are.
std::vector<Finding> shared_lines(const std::vector<Part>& parts, std::uint32_t phases, double operations,
                                  const std::string& others = "");
std::string describe(const std::vector<Finding>& findings);

}  // namespace heddle::sharing
