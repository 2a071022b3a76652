// The command that repeats a figure.
#include <algorithm>
#include <set>
#include <sstream>

#include "harness/options.hpp"
#include "report/report.hpp"
#include "report/verdict.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;

const std::set<std::string> kOps = {"put", "put_flush", "put_wait", "get",  "am",  "tagged", "fadd",
                                    "add", "and",       "or",       "xor",  "swap", "cswap"};
const std::set<std::string> kModes = {"shared", "offload", "delegate", "mutex", "auto", "auto_one"};
const std::set<std::string> kSizes = {"pingpong", "bandwidth", "duplex", "overlap", "programs"};

// What --op calls it: variants of a program have one name. Empty: the bench runs all of its
// operations.
std::string option_of(const std::string& bench, const std::string& op) {
  if (bench != "programs") return kOps.contains(op) && bench != "oversubscription" ? op : "";
  std::string longest;
  for (const std::string& name : harness::kProgramNames) {
    if ((op == name || op.starts_with(name + "_")) && name.size() > longest.size()) longest = name;
  }
  return longest;
}

std::string listed(const char* option, const std::set<std::string>& values) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? std::string(" ") + option + " " : ",") + value;
  return out;
}

template <class Number>
std::string listed(const char* option, const std::set<Number>& values) {
  std::string out;
  for (const Number value : values) {
    const bool mebi = value != 0 && value % (1 << 20) == 0;
    const bool kibi = !mebi && value != 0 && value % 1024 == 0;
    out += (out.empty() ? std::string(" ") + option + " " : ",") +
           std::to_string(mebi ? value >> 20 : kibi ? value >> 10 : value) + (mebi ? "M" : kibi ? "K" : "");
  }
  return out;
}

// How long and beside what the run measured.
std::string kept(const std::string& given) {
  std::istringstream words(given);
  std::string out;
  for (std::string word; words >> word;) {
    std::string value;
    if (word == "--time" || word == "--repeat" || word == "--total-words" || word == "--workers") words >> value;
    if (!value.empty()) out += " " + word + " " + value;
    if (word == "--switches" || word == "--quick") out += " " + word;
  }
  return out;
}

}  // namespace

std::string command_for(const std::vector<const Record*>& figures, const std::string& given) {
  const std::string full = figures.front()->key.bench;
  const std::size_t busy = full.find("_busy_");
  const std::string bench = full.substr(0, busy);
  std::set<std::string> ops;
  std::set<std::string> modes;
  std::set<std::string> memory;
  std::set<std::uint64_t> sizes;
  std::set<std::uint32_t> threads;
  bool all_ops = false;
  bool peers = false;
  for (const Record* one : figures) {
    const harness::Key& key = one->key;
    peers = peers || is_peer(*one);
    sizes.insert(key.size_bytes);
    if (key.transport == "limit") continue;  // measured beside the others
    threads.insert(key.threads);
    memory.insert(key.memory);
    if (harness::is_heddle(key) && (kModes.contains(key.sharing) || key.sharing == "exclusive")) modes.insert(key.sharing);
    const std::string op = option_of(bench, key.op);
    all_ops = all_ops || op.empty();
    ops.insert(op);
  }
  std::string out = "heddle bench " + bench;
  if (!all_ops) out += listed("--op", ops);
  if (kSizes.contains(bench)) out += listed("--size", sizes);
  if (threads.size() > 1 || threads > std::set<std::uint32_t>{1}) out += listed("--threads", threads);
  if (std::any_of(modes.begin(), modes.end(), [](const auto& mode) { return kModes.contains(mode); })) {
    out += listed("--sharing", modes);
  }
  if (memory.size() == 1 && !memory.contains("allocated")) out += listed("--memory", memory);
  if (busy != std::string::npos) out += " --busy " + full.substr(busy + 6);
  return out + (peers ? " --peers" : "") + kept(given);
}

}  // namespace heddle::bench::report
