// Which transport a job uses: see choose().
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/wait.hpp"
#include "bootstrap/nodes.hpp"
#include "transport/names.hpp"

namespace heddle::transport {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr const char* kNear = "shm";

// A transport for the ranks of other nodes.
struct Candidate {
  std::string name;
  std::string shown;                                            // for people
  base::Status (*probe)(const base::Environment& environment);  // null: it is there
};

// Where nothing is set, the best first. An adapter that only libfabric drives comes before UCX,
// which would reach it as a slower Ethernet; else UCX, which knows most adapters best. libfabric
// comes last a second time, over TCP.
std::vector<Candidate> usual_candidates() {
  std::vector<Candidate> all = {{"ofi", "ofi with an adapter of its own", find("ofi")->probe_own}};
  for (const char* name : {"ucx", "verbs", "ofi"}) all.push_back({name, name, find(name)->probe});
  return all;
}

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = list.find(',');
    names.push_back(list.substr(0, comma));
    if (comma != std::string_view::npos) list.remove_prefix(comma + 1);
  }
  return names;
}

// What each rank tells the others: the first candidate that it can use; the names of all follow.
struct Proposal {
  std::uint32_t magic = kMagic;
  std::uint32_t at = 0;
  static constexpr std::uint32_t kMagic = 0x43544448;  // "HDTC"
};

// The candidates of this rank, and why some cannot be used.
class Candidates {
 public:
  Candidates(std::vector<Candidate> all, const base::Environment& environment)
      : all_(std::move(all)), environment_(environment) {}

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(all_.size()); }
  [[nodiscard]] const std::string& name(std::uint32_t at) const { return all_[at].name; }
  // The first one from there that can be used here; size(): there is none.
  std::uint32_t first_from(std::uint32_t at) {
    for (; at < size(); ++at) {
      if (all_[at].probe == nullptr || all_[at].probe(environment_) == HEDDLE_DONE) return at;
      // of a name that comes twice, the second time
      if (std::any_of(all_.begin() + at + 1, all_.end(),
                      [&](const Candidate& one) { return one.name == all_[at].name; }))
        continue;
      why_ += (why_.empty() ? "" : "; ") + all_[at].name + ": " + base::last_message();
    }
    return at;
  }
  // Why those before cannot be used here; empty: all can.
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] std::string names() const {
    std::string text;
    for (const Candidate& one : all_) text += (text.empty() ? "" : ", ") + one.shown;
    return text;
  }

 private:
  std::vector<Candidate> all_;
  const base::Environment& environment_;
  std::string why_;
};

// `all`: of each rank, by rank.
base::Status exchange(bootstrap::Bootstrap& bootstrap, std::uint32_t at, const std::string& names,
                      std::vector<std::vector<std::byte>>* all) {
  Proposal proposal;
  proposal.at = at;
  std::string mine(reinterpret_cast<const char*>(&proposal), sizeof proposal);
  mine += names;
  base::Status status = bootstrap.exchange_start(std::as_bytes(std::span(mine)));
  if (status != HEDDLE_DONE) return status;
  base::Nap nap;
  while ((status = bootstrap.exchange_test(all)) == HEDDLE_AGAIN) nap.take();
  return status;
}

// The place that the rank proposes. CONFIG: its settings are others.
base::Result<std::uint32_t> read(const std::vector<std::byte>& said, std::uint32_t rank, const std::string& names) {
  Proposal theirs{};
  const std::string_view all(reinterpret_cast<const char*>(said.data()), said.size());
  const bool whole = said.size() >= sizeof theirs;
  if (whole) std::memcpy(&theirs, said.data(), sizeof theirs);
  if (whole && theirs.magic == Proposal::kMagic && all.substr(sizeof theirs) == names) return theirs.at;
  return base::fail(HEDDLE_ERR_CONFIG,
                    "rank %u may use other networks than this rank, which may use %s; give all ranks the same "
                    "HEDDLE_TRANSPORT and HEDDLE_TRANSPORTS",
                    rank, names.c_str());
}

// The first candidate that every rank can use. Each proposes the first that it can; if they differ,
// each looks on from the last of these. So all look at no more than is needed, and find the same.
base::Result<std::uint32_t> agree(bootstrap::Bootstrap& bootstrap, Candidates& candidates) {
  const std::string names = candidates.names();
  std::uint32_t mine = candidates.first_from(0);
  for (;;) {
    std::vector<std::vector<std::byte>> all;
    if (const base::Status status = exchange(bootstrap, mine, names, &all); status != HEDDLE_DONE) return status;
    std::uint32_t last = mine;
    bool same = true;
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
      const auto theirs = read(all[rank], rank, names);
      if (!theirs) return theirs.status();
      if (*theirs >= candidates.size()) {
        const std::string here = candidates.why().empty() ? "" : "; on this rank: " + candidates.why();
        return base::fail(HEDDLE_ERR_CONFIG,
                          "rank %u can use none of the networks %s that the others can; install one there (`heddle "
                          "info transports` says "
                          "what is missing), or name another with HEDDLE_TRANSPORTS%s",
                          rank, names.c_str(), here.c_str());
      }
      same = same && *theirs == mine;
      last = std::max(last, *theirs);
    }
    if (same) return mine;
    mine = candidates.first_from(last);
  }
}

// Which part of HEDDLE_TRANSPORTS the job uses, by where its ranks are.
base::Result<Choice> choose_among(const std::string& list, bootstrap::Bootstrap& bootstrap,
                                  const base::Environment& environment) {
  const Wanted wanted(list.empty() ? std::string_view(kNear) : std::string_view(list));
  const Entry* near = find(wanted.near);
  const std::vector<std::uint32_t> nodes =
      bootstrap::nodes_of(bootstrap, environment.config.number(base::Var::node_ranks));
  const std::uint32_t count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  const bool one_for_all = !list.empty() && wanted.far.empty();
  if (one_for_all && near->one_node && count > 1) {
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "HEDDLE_TRANSPORTS=%s: it reaches the ranks of its own node, and this job is on %u nodes; name one "
        "for the others too, such as shm,ucx",
        list.c_str(), count);
  }
  if (one_for_all) return Choice{list, "HEDDLE_TRANSPORTS names it alone"};
  if (count == 1) return Choice{wanted.one(wanted.near), "all ranks are on one node"};

  std::vector<Candidate> all;
  if (list.empty()) {
    all = usual_candidates();
  } else {
    for (const std::string_view name : names_in(wanted.far))
      all.push_back({std::string(name), std::string(name), find(name)->probe});
  }
  Candidates candidates(std::move(all), environment);
  std::uint32_t at = 0;
  if (candidates.size() > 1) {
    const auto agreed = agree(bootstrap, candidates);
    if (!agreed) return agreed.status();
    at = *agreed;
  }
  const std::string& far = candidates.name(at);
  std::string why = candidates.size() == 1 ? "HEDDLE_TRANSPORTS names " + far + " for other nodes"
                                           : far + " is the first of " + candidates.names() + " that all ranks can use";
  if (!candidates.why().empty()) why += " (here " + candidates.why() + ")";
  if (count == nodes.size()) return Choice{wanted.one(far), "each rank is on a node of its own; " + why};
  return Choice{wanted.one(std::string(wanted.near) + "," + far), why};
}

}  // namespace

base::Status check_choice(const char* asked, const base::Config& config) {
  if (asked != nullptr && asked != kAuto) return is_known(asked) ? HEDDLE_DONE : fail_unknown(asked);
  const std::string& one = config.text(base::Var::transport);
  const std::string& list = config.text(base::Var::transports);
  if (one != kAuto && !list.empty() && one != list) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "HEDDLE_TRANSPORT=%s and HEDDLE_TRANSPORTS=%s contradict each other: the first names what all of "
                      "the job uses, the second what it may choose from; unset one",
                      one.c_str(), list.c_str());
  }
  if (one != kAuto) return is_known(one) ? HEDDLE_DONE : fail_unknown(one);
  if (list.empty()) return HEDDLE_DONE;
  const Wanted wanted(list);
  std::vector<std::string_view> names = names_in(wanted.far);
  if (wanted.far.empty() && list.back() != ',') names.clear();
  names.push_back(wanted.near);
  if (std::ranges::all_of(names, [](std::string_view name) { return find(name) != nullptr; })) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG,
                    "HEDDLE_TRANSPORTS=\"%s\" names a transport that there is not: it is one, or NEAR,FAR, or "
                    "NEAR,FAR,FAR…, the first that all ranks can use; `heddle info` lists them",
                    list.c_str());
}

base::Result<Choice> choose(const char* asked, bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  const base::Config& config = environment.config;
  if (const base::Status status = check_choice(asked, config); status != HEDDLE_DONE) return status;
  if (asked != nullptr && asked != kAuto) return Choice{asked, "the program names it"};
  const std::string& one = config.text(base::Var::transport);
  if (one != kAuto) return Choice{one, "HEDDLE_TRANSPORT names it"};
  return choose_among(config.text(base::Var::transports), bootstrap, environment);
}

}  // namespace heddle::transport
