// What is said of the programs: each row of each library, near and far apart, beside the best peer
// of the same row.
#pragma once

#include <string>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::driver {

// Samples of times when the cores were near, and when they were far, are two rows: neither hides
// the other. Those during which it changed count only where there are no others.
std::vector<harness::Record> records_of(const std::vector<harness::Sample>& samples);

// Each of Heddle's records is followed by the same again with the best peer of the same row and
// distance, if there is one.
std::vector<harness::Record> with_best_peer(const std::vector<harness::Record>& records);

// Who is ahead: "heddle", the peer's name, or "level" where the 95 % intervals overlap. "" without
// a peer.
std::string ahead(const harness::Record& ours, const std::vector<harness::Record>& records);

// A line for each of Heddle's rows: median, interval, best peer, ratio, who is ahead, the other
// peers.
std::string programs_table(const std::vector<harness::Record>& records);

}  // namespace heddle::bench::driver
