// The report: its words (about names, about noise, about one figure compared with another), its
// sentences, and its page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::report {

// Three digits: "2.40", "71.1", "257".
std::string figure_text(double value);
// The same with the unit: "71.1 ns".
std::string figure_text(const harness::BenchRecord& record);

// Two digits: "0.79 %", "313 %".
std::string percent_text(double percent);

// The meaning of the name of a bench or an operation; empty if nothing is known of it.
std::string meaning(const std::string& name);

// "Heddle", "UCX", "Open MPI": a transport, or what a ratio is `against`, as people call it.
std::string library_name(const std::string& name);

// Anything that makes a figure less reliable than it seems, or else its noise: "steady: ±1 %",
// "noisy: ±40 %, only a rough figure", "measured once: its noise is unknown".
std::string noise_words(const harness::BenchRecord& record);

// "3.1 × ", "1.15 × ".
std::string times(double ratio);
// Heddle's figure beside a peer's: "3.1 × UCX", "0.49 × UCX's time", and whether that says
// anything: "ahead", "behind", or "level, within the noise".
std::string ratio_words(const harness::BenchRecord& ours, double ratio, const std::string& against);
std::string beside_words(const harness::BenchRecord& ours, const harness::BenchRecord& peer);

// The same figure of two runs. Level: the intervals overlap, or nobody knows them. In words: "3 %
// slower, within the noise of ±5 %", "2.4 × as fast, beyond the noise of ±5 %".
struct Change {
  harness::Standing standing = harness::Standing::level;  // ahead: the later run is the better one
  // change of the figure itself, no matter which is better
  double percent = 0;
  std::string words;
};
Change change(const harness::BenchRecord& before, const harness::BenchRecord& after);

// The summary of a session, in sentences: the answer in one line, where Heddle is ahead and where
// not, how far the figures may be trusted, and what has changed since an earlier session.

// "rate put of 8 bytes, 2 threads": a figure by its name.
std::string name_of(const harness::BenchRecord& record);

// Whether a participant is neither Heddle nor the machine.
bool is_peer(const harness::BenchRecord& record);

// First the answer: "On this machine: 3.1 × UCX with 2 threads, 1.15 × the limit." Then the figures
// it is made of. The choice of figures is fixed: the best ones are not picked.
std::vector<std::string> answer(const std::vector<harness::BenchRecord>& records);

// First how many figures are ahead, behind and level, each beside the best peer that did the same;
// then each that is behind.
std::vector<std::string> verdict(const std::vector<harness::BenchRecord>& records);

// How far the figures of a session may be trusted. A sentence that begins with "!" is a warning.
std::vector<std::string> trust(const harness::Results& results);

struct Compared {
  const harness::BenchRecord* before;
  const harness::BenchRecord* after;
  Change change;
};
struct Comparison {
  std::vector<std::string> summary;  // as of trust()
  std::vector<Compared> figures;     // beyond the noise first, then Heddle's first, then by size
};
// The figures that both sessions have. Both must outlive the result.
Comparison compare(const harness::Results& before, const harness::Results& after);

// `heddle report`: benchmark results as one HTML page that needs nothing else.

// The command. 0, 1 (a file cannot be read or written), 2 (arguments).
int run(int argc, char** argv);

// Reads the results of all files and writes the page. False: *error says which file, which line and
// what.
bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error);

struct NamedResults {
  std::string name;  // the file's
  harness::Results results;
};
// The contents of the page, as JSON that can stand in a script element: it contains no "<". All
// sentences are made here; the page's script draws them.
std::string page_data(const std::vector<NamedResults>& runs);
// The page itself.
std::string page(const std::vector<NamedResults>& runs);

// The command that measures these figures again. They are of one bench and of one run, whose
// command was `given`.
std::string command_for(const std::vector<const harness::BenchRecord*>& figures, const std::string& given);

}  // namespace heddle::bench::report
