// The command that repeats a figure.
#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "harness/options.hpp"
#include "report/report.hpp"
#include "report/verdict.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;

const std::set<std::string> kOps = {"put", "put_flush", "put_wait", "get", "am",   "tagged", "fadd",
                                    "add", "and",       "or",       "xor", "swap", "cswap"};
const std::set<std::string> kModes = {"shared", "offload", "delegate", "mutex", "auto", "auto_one"};
const std::set<std::string> kSizes = {"pingpong", "bandwidth", "duplex", "overlap", "programs"};
const std::set<std::string> kKept = {"--time", "--repeat", "--total-words"};

// The operation's name for --op: variants of a program have one name. Empty: the bench runs all of
// its operations.
std::string option_of(const std::string& bench, const std::string& op) {
  if (bench != "programs") return kOps.contains(op) && bench != "oversubscription" ? op : "";
  std::string longest;
  for (const std::string& name : harness::kProgramNames) {
    if ((op == name || op.starts_with(name + "_")) && name.size() > longest.size()) longest = name;
  }
  return longest;
}

std::string size_option(std::uint64_t bytes) {
  if (bytes != 0 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + "M";
  return bytes != 0 && bytes % 1024 == 0 ? std::to_string(bytes >> 10) + "K" : std::to_string(bytes);
}

// The different values of an option, in the order in which they were measured.
class Values {
 public:
  void add(const std::string& value) {
    if (std::find(all_.begin(), all_.end(), value) == all_.end()) all_.push_back(value);
  }
  [[nodiscard]] bool only(const std::string& value) const { return all_ == std::vector{value} || all_.empty(); }
  [[nodiscard]] std::string option(const char* name) const {
    std::string out;
    for (const std::string& value : all_) out += (out.empty() ? std::string(" ") + name + " " : ",") + value;
    return out;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::string command_for(const std::vector<const Record*>& figures, const std::string& given) {
  const std::string full = figures.front()->key.bench;
  const std::size_t busy = full.find("_busy_");
  const std::string bench = full.substr(0, busy);
  const bool collective = harness::contains(harness::kCollectiveNames, bench);
  Values ops, sizes, threads, modes, memory, ranks;
  bool all_ops = false;
  bool peers = false;
  for (const Record* one : figures) {
    const harness::Key& key = one->key;
    peers = peers || is_peer(*one);
    sizes.add(size_option(key.size_bytes));
    if (key.transport == "limit") continue;  // measured beside the others
    threads.add(std::to_string(key.threads));
    memory.add(key.memory);
    ranks.add(std::to_string(key.processes));
    if (collective) {
      const std::string form = key.op.substr(0, key.op.find('_'));
      if (harness::contains(harness::kCollectiveForms, form)) ops.add(form);
      continue;
    }
    if (kModes.contains(key.sharing) ? !is_peer(*one) : key.sharing == "exclusive") modes.add(key.sharing);
    ops.add(option_of(bench, key.op));
    all_ops = all_ops || option_of(bench, key.op).empty();
  }
  std::string out = "heddle bench " + bench;
  if (!all_ops && !collective) out += ops.option("--op");
  if (collective) out += ranks.option("--ranks") + ops.option("--form");
  if (kSizes.contains(bench) || (collective && bench != "barrier")) out += sizes.option("--size");
  if (!threads.only("1")) out += threads.option("--threads");
  if (!modes.only("exclusive")) out += modes.option("--sharing");
  for (const char* kind : {"registered", "adopted", "malloc", "own"}) {
    if (memory.only(kind)) out += memory.option("--memory");
  }
  if (busy != std::string::npos) out += " --busy " + full.substr(busy + 6);
  if (peers) out += " --peers";
  // How long it was measured, as the run was told.
  std::istringstream words(given);
  for (std::string word, value; words >> word;) {
    if (kKept.contains(word) && words >> value) out += " " + word + " " + value;
    if (word == "--switches" || word == "--quick") out += " " + word;
  }
  return out;
}

}  // namespace heddle::bench::report
