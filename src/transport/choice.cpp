// Which transport a job uses: see choose().
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "bootstrap/common.hpp"
#include "transport/names.hpp"

namespace heddle::transport {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kNear = "shm";
// How long a rank waits for the others before it asks whether they take part.
constexpr std::int64_t kPatienceNs = 1'000'000'000;
constexpr const char* kAbsent =
    "rank %u does not say which networks it may use, as this rank does because the job is on several nodes: it has "
    "another HEDDLE_NODE_RANKS, or another version of Heddle; give all ranks the same";

// A transport for the ranks of other nodes.
struct Candidate {
  std::string name;
  std::string shown;                                            // for people
  base::Status (*probe)(const base::Environment& environment);  // null: it is there
};

// The candidates if nothing is set, the best first. An adapter that only libfabric drives comes
// before UCX, which would reach it as a slower Ethernet. Then comes UCX, which knows most adapters
// best. libfabric comes last a second time, over TCP.
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

// The transports that this rank's program and settings name.
struct Named {
  std::string name;        // one for all ranks, or as in HEDDLE_TRANSPORTS; empty: nothing is set
  bool only = false;       // that one is used, wherever the ranks are
  std::string said;        // for people of other ranks
  std::string why;         // if it is that one
  bool from_list = false;  // HEDDLE_TRANSPORTS has it
};

Named named_by(const char* asked, const base::Config& config) {
  if (asked != nullptr && asked != kAuto) {
    return {asked, true, "a program that names " + std::string(asked), "the program names it"};
  }
  const std::string& one = config.text(base::Var::transport);
  if (one != kAuto) return {one, true, "HEDDLE_TRANSPORT=" + one, "HEDDLE_TRANSPORT names it"};
  const std::string& list = config.text(base::Var::transports);
  if (list.empty()) return {"", false, "neither HEDDLE_TRANSPORT nor HEDDLE_TRANSPORTS", ""};
  const bool only = WantedTransports(list).far.empty();
  return {list, only, "HEDDLE_TRANSPORTS=" + list, "HEDDLE_TRANSPORTS names it alone", true};
}

// A rank's message to the others: the first candidate that it can use. Said::as_bytes() follows.
struct Proposal {
  std::uint32_t magic = kMagic;
  std::uint32_t at = 0;
  static constexpr std::uint32_t kMagic = 0x53544448;  // "HDTS"
};

// The transports that a rank may use, which must be the same in all ranks; and, for people, the
// settings that say so.
struct Said {
  std::string may_use;
  std::string settings;

  [[nodiscard]] std::string as_bytes() const { return may_use + '\0' + settings; }
};

// The first setting of that transport which this rank's user has made. Null: there is none.
const char* setting_of(std::string_view transport, const base::Config& config) {
  std::string prefix = "HEDDLE_" + std::string(transport) + "_";
  std::ranges::transform(prefix, prefix.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  const std::string library = "HEDDLE_LIBRARIES." + std::string(transport);
  const bool has_devices = transport == "ucx" || transport == "ofi" || transport == "verbs";
  for (const base::Variable& variable : base::variables()) {
    const std::string_view name = variable.name;
    const bool its =
        name.starts_with(prefix) || name == library || (has_devices && variable.var == base::Var::network_devices);
    if (its && config.is_set(variable.var)) return variable.name;
  }
  return nullptr;
}

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
      // if a name comes twice, only its second place is reported
      if (std::any_of(all_.begin() + at + 1, all_.end(),
                      [&](const Candidate& one) { return one.name == all_[at].name; }))
        continue;
      why_ += (why_.empty() ? "" : "; ") + all_[at].name + ": " + base::last_message();
      if (setting_of(all_[at].name, environment_.config) != nullptr)
        wanted_.emplace_back(all_[at].name, base::last_message());
    }
    return at;
  }
  // Warns of transports that cannot be used here although the user has made settings of them.
  void tell_left_out(const std::string& instead) const {
    for (const auto& [name, why] : wanted_) {
      environment_.log.line(base::Level::warn, "the transport %s is left out, though %s is set: %s; the job uses %s",
                            name.c_str(), setting_of(name, environment_.config), why.c_str(), instead.c_str());
    }
  }
  // Why the candidates before the first usable one cannot be used here; empty: all can.
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
  std::vector<std::pair<std::string, std::string>> wanted_;  // by name: why not
};

// If HEDDLE_NODE_RANKS makes several nodes of one machine, ranks without this setting take no part
// in the exchange. A rank that has published its card is past the exchange: if it had taken part,
// the exchange would be over for all.
base::Status find_absent(bootstrap::Bootstrap& bootstrap, std::vector<std::vector<std::byte>>* all) {
  for (std::uint32_t rank = 0; rank < bootstrap.size(); ++rank) {
    if (rank == bootstrap.rank() || !bootstrap.fetch_bytes(rank)) continue;
    const base::Status status = bootstrap.exchange_test(all);
    if (status != HEDDLE_AGAIN) return status;
    return base::fail(HEDDLE_ERR_CONFIG, kAbsent, rank);
  }
  return HEDDLE_AGAIN;
}

// `all`: of each rank, by rank.
base::Status exchange(bootstrap::Bootstrap& bootstrap, base::Clock& clock, std::uint32_t at, const Said& said,
                      std::vector<std::vector<std::byte>>* all) {
  Proposal proposal;
  proposal.at = at;
  const std::string mine = std::string(reinterpret_cast<const char*>(&proposal), sizeof proposal) + said.as_bytes();
  base::Status status = bootstrap.exchange_start(std::as_bytes(std::span(mine)));
  if (status != HEDDLE_DONE) return status;
  const bool one_machine = bootstrap.place(bootstrap.rank()).hosts == 1;
  base::Timeout patience(one_machine ? kPatienceNs : base::Timeout::kForever, clock);
  base::Nap nap;
  while ((status = bootstrap.exchange_test(all)) == HEDDLE_AGAIN) {
    if (patience.over()) {
      if ((status = find_absent(bootstrap, all)) != HEDDLE_AGAIN) break;
      patience.renew();
    }
    nap.take();
  }
  return status;
}

// The place that the rank proposes. CONFIG: its settings are others.
base::Result<std::uint32_t> read(const std::vector<std::byte>& bytes, std::uint32_t rank, const Said& mine) {
  Proposal theirs{};
  std::string_view said(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (said.size() >= sizeof theirs) std::memcpy(&theirs, said.data(), sizeof theirs);
  if (said.size() < sizeof theirs || theirs.magic != Proposal::kMagic) {
    return base::fail(HEDDLE_ERR_CONFIG, kAbsent, rank);
  }
  said.remove_prefix(sizeof theirs);
  const std::size_t end = std::min(said.find('\0'), said.size());
  if (said.substr(0, end) == mine.may_use) return theirs.at;
  const std::string settings(said.substr(std::min(end + 1, said.size())));
  // the same, said otherwise: they have other candidates
  const bool versions = settings == mine.settings;
  return base::fail(HEDDLE_ERR_CONFIG, "rank %u has %s, this rank %s; give all ranks the same%s", rank,
                    settings.c_str(), mine.settings.c_str(), versions ? " version of Heddle" : "");
}

// The first candidate that every rank can use. Each proposes the first that it can; if they differ,
// each looks on from the last of these. So all look at no more than is needed, and find the same.
// *tells: this is the lowest of the ranks that could not use the first.
base::Result<std::uint32_t> agree(bootstrap::Bootstrap& bootstrap, base::Clock& clock, const Said& said,
                                  Candidates& candidates, bool* tells) {
  std::uint32_t mine = candidates.first_from(0);
  for (bool first = true;; first = false) {
    std::vector<std::vector<std::byte>> all;
    if (const base::Status status = exchange(bootstrap, clock, mine, said, &all); status != HEDDLE_DONE) return status;
    std::uint32_t last = mine;
    std::uint32_t lacks = bootstrap.size();
    bool same = true;
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
      const auto theirs = read(all[rank], rank, said);
      if (!theirs) return theirs.status();
      if (*theirs >= candidates.size()) {
        const std::string here = candidates.why().empty() ? "" : "; on this rank: " + candidates.why();
        return base::fail(HEDDLE_ERR_CONFIG,
                          "rank %u can use none of the networks %s that the others can; install one there (`heddle "
                          "info transports` says "
                          "what is missing), or name another with HEDDLE_TRANSPORTS%s",
                          rank, candidates.names().c_str(), here.c_str());
      }
      if (*theirs != 0) lacks = std::min(lacks, rank);
      same = same && *theirs == mine;
      last = std::max(last, *theirs);
    }
    if (first) *tells = lacks == bootstrap.rank();
    if (same) return mine;
    mine = candidates.first_from(last);
  }
}

// One candidate is not tried: opening it says more.
std::vector<Candidate> candidates_of(const Named& named) {
  if (named.only) return {{named.name, named.name, nullptr}};
  if (named.name.empty()) return usual_candidates();
  std::vector<Candidate> all;
  for (const std::string_view name : names_in(WantedTransports(named.name).far))
    all.push_back({std::string(name), std::string(name), find(name)->probe});
  if (all.size() == 1) all.front().probe = nullptr;
  return all;
}

// Chooses the transport for ranks on `count` nodes.
base::Result<Choice> choose_among(const Named& named, std::size_t count, bootstrap::Bootstrap& bootstrap,
                                  const base::Environment& environment) {
  const std::uint64_t node_ranks = environment.config.number(base::Var::node_ranks);
  Candidates candidates(candidates_of(named), environment);
  Said said{named.only ? named.name : named.name + ":" + candidates.names() + ":" + std::to_string(node_ranks),
            named.said};
  if (node_ranks != 0) said.settings += " and HEDDLE_NODE_RANKS=" + std::to_string(node_ranks);
  bool tells = false;
  const auto agreed = agree(bootstrap, *environment.clock, said, candidates, &tells);
  if (!agreed) return agreed.status();
  if (tells) candidates.tell_left_out(candidates.name(*agreed));
  if (named.from_list && named.only && find(WantedTransports(named.name).near)->one_node) {
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "HEDDLE_TRANSPORTS=%s: it reaches the ranks of its own node, and this job is on %zu nodes; name one "
        "for the others too, such as shm,ucx",
        named.name.c_str(), count);
  }
  if (named.only) return Choice{named.name, named.why};
  const std::string& far = candidates.name(*agreed);
  std::string why = candidates.size() == 1 ? "HEDDLE_TRANSPORTS names " + far + " for other nodes"
                                           : far + " is the first of " + candidates.names() + " that all ranks can use";
  if (!candidates.why().empty()) why += " (here " + candidates.why() + ")";
  const WantedTransports wanted(named.name.empty() ? kNear : std::string_view(named.name));
  if (count == bootstrap.size()) return Choice{wanted.one(far), "each rank is on a node of its own; " + why};
  return Choice{wanted.one(std::string(wanted.near) + "," + far), why};
}

// CONFIG: one of them reaches no rank of another node. `far` may hold an empty name: there is none.
base::Status check_far(const std::vector<std::string_view>& far, const char* variable, const std::string& value) {
  for (const std::string_view name : far) {
    if (name.empty() || !find(name)->one_node) continue;
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "%s=%s: %.*s reaches the ranks of its own node, so it cannot be one for other nodes; name a network "
        "there, such as %.*s,ucx",
        variable, value.c_str(), static_cast<int>(name.size()), name.data(),
        static_cast<int>(WantedTransports(value).near.size()), WantedTransports(value).near.data());
  }
  return HEDDLE_DONE;
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
  if (one != kAuto)
    return is_known(one) ? check_far({WantedTransports(one).far}, "HEDDLE_TRANSPORT", one) : fail_unknown(one);
  if (list.empty()) return HEDDLE_DONE;
  const WantedTransports wanted(list);
  std::vector<std::string_view> names = names_in(wanted.far);
  if (wanted.far.empty() && list.back() != ',') names.clear();
  names.push_back(wanted.near);
  const auto unknown = std::ranges::find_if(names, [](std::string_view name) { return find(name) == nullptr; });
  if (unknown == names.end()) return check_far(names_in(wanted.far), "HEDDLE_TRANSPORTS", list);
  if (unknown->empty()) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "HEDDLE_TRANSPORTS=\"%s\" has an empty entry: give one transport, or NEAR,FAR, or NEAR,FAR,FAR…, "
                      "with one comma between two of them",
                      list.c_str());
  }
  return base::fail(
      HEDDLE_ERR_CONFIG,
      "HEDDLE_TRANSPORTS=\"%s\" names a transport that there is not, \"%.*s\": it is one, or NEAR,FAR, or "
      "NEAR,FAR,FAR…, the first that all ranks can use, without spaces; `heddle info` lists them",
      list.c_str(), static_cast<int>(unknown->size()), unknown->data());
}

base::Result<Choice> network_here(const base::Environment& environment) {
  if (const base::Status status = check_choice(nullptr, environment.config); status != HEDDLE_DONE) return status;
  const Named named = named_by(nullptr, environment.config);
  if (named.only) {
    const WantedTransports wanted(named.name);
    const TransportRow* const entry = find(wanted.far.empty() ? wanted.near : wanted.far);
    if (entry->one_node) {
      return base::fail(
          HEDDLE_ERR_CONFIG, "%s=%s reaches the ranks of one node only; name a network too, such as %s,ucx",
          named.from_list ? "HEDDLE_TRANSPORTS" : "HEDDLE_TRANSPORT", named.name.c_str(), named.name.c_str());
    }
    const base::Status status = entry->probe != nullptr ? entry->probe(environment) : base::Status{HEDDLE_DONE};
    if (status != HEDDLE_DONE) return status;
    return Choice{wanted.far.empty() ? named.name : std::string(wanted.far), named.why};
  }
  std::vector<Candidate> all = candidates_of(named);
  for (Candidate& one : all) one.probe = one.probe == nullptr ? find(one.name)->probe : one.probe;
  Candidates candidates(std::move(all), environment);
  const std::uint32_t at = candidates.first_from(0);
  if (at < candidates.size()) {
    const std::string why = "the first of " + candidates.names() + " that can be used here";
    return Choice{candidates.name(at), candidates.size() == 1 ? "HEDDLE_TRANSPORTS names it" : why};
  }
  return base::fail(HEDDLE_ERR_CONFIG, "none of %s can be used here: %s", candidates.names().c_str(),
                    candidates.why().c_str());
}

base::Result<Choice> choose(const char* asked, bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  const base::Config& config = environment.config;
  if (const base::Status status = check_choice(asked, config); status != HEDDLE_DONE) return status;
  const std::vector<std::uint32_t> nodes = bootstrap::nodes_of(bootstrap, config.number(base::Var::node_ranks));
  const std::size_t count = std::size_t{*std::max_element(nodes.begin(), nodes.end())} + 1;
  const Named named = named_by(asked, config);
  if (count > 1) return choose_among(named, count, bootstrap, environment);
  if (named.only) return Choice{named.name, named.why};
  const WantedTransports wanted(named.name.empty() ? kNear : std::string_view(named.name));
  return Choice{wanted.one(wanted.near), "all ranks are on one node"};
}

}  // namespace heddle::transport
