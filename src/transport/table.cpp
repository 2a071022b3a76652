// The table of transports. A new transport is a folder and a row here.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/nodes.hpp"
#include "transport/fault/fault.hpp"
#include "transport/joint/joint.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/shm/shm.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/ucx.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport {
namespace {

constexpr std::array kTable = {
    Entry{.name = "shm",
          .help = "processes of one machine through shared memory",
          .open = shm::open,
          .one_node = true,
          .anywhere = true},
    Entry{.name = "utofu",
          .help = "Tofu interconnect D through libtofucom, or its emulator",
          .open = utofu::open,
          .one_thread = utofu::one_thread},
    Entry{.name = "ucx",
          .help = "other machines, through UCX: InfiniBand, RoCE, TCP and what else it reaches",
          .open = ucx::open},
    Entry{.name = "loopback",
          .help = "ranks of one process, the reference for tests",
          .open = loopback::open,
          .anywhere = true,
          .for_tests = true},
    Entry{.name = "loopback-messages",
          .help = "loopback with messages only: everything else is built by the protocol layer",
          .open = loopback::open_messages_only,
          .anywhere = true,
          .for_tests = true},
};

constexpr std::string_view kFaultPrefix = "fault+";

// "fault+NEAR,FAR": all but NEAR may be missing.
struct Wanted {
  bool faulty = false;
  std::string_view near;
  std::string_view far;  // empty: `near` reaches all ranks

  explicit Wanted(std::string_view name) : faulty(name.starts_with(kFaultPrefix)) {
    if (faulty) name.remove_prefix(kFaultPrefix.size());
    const std::size_t comma = name.find(',');
    near = name.substr(0, comma);
    if (comma != std::string_view::npos) far = name.substr(comma + 1);
  }
  // The name for open() of one of the two.
  [[nodiscard]] std::string one(std::string_view which) const {
    return std::string(faulty ? kFaultPrefix : "") + std::string(which);
  }
};

const Entry* find(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

base::Status fail_unknown(const std::string& name) {
  std::string names;
  for (const Entry& entry : kTable) names += std::string(names.empty() ? "" : ", ") + entry.name;
  return base::fail(HEDDLE_ERR_CONFIG,
                    "there is no transport \"%s\"; there are %s, each also as fault+NAME, and NEAR,FAR for two of them",
                    name.c_str(), names.c_str());
}

// One transport, or NEAR,FAR.
bool is_known(const std::string& name) {
  const Wanted wanted(name);
  const bool ends_with_comma = !name.empty() && name.back() == ',';
  return find(wanted.near) != nullptr && (wanted.far.empty() || find(wanted.far) != nullptr) && !ends_with_comma;
}

constexpr std::string_view kAuto = "auto";
constexpr const char* kUsualList = "shm,ucx";

// Which part of HEDDLE_TRANSPORTS the job uses, by where its ranks are.
base::Result<std::string> choose_among(const std::string& list, const bootstrap::Bootstrap& bootstrap,
                                       std::uint64_t node_ranks) {
  const Wanted wanted(list);
  const Entry* near = find(wanted.near);
  const bool two = !wanted.far.empty();
  const std::vector<std::uint32_t> nodes = bootstrap::nodes_of(bootstrap, node_ranks);
  const std::uint32_t count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  if (!two && near->one_node && count > 1) {
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "HEDDLE_TRANSPORTS=%s: it reaches the ranks of its own node, and this job is on %u nodes; name one "
        "for the others too, such as shm,ucx",
        list.c_str(), count);
  }
  if (!two) return list;
  if (count == 1) return wanted.one(wanted.near);
  if (count == nodes.size()) return wanted.one(wanted.far);
  return list;
}

}  // namespace

std::span<const Entry> table() {
  return kTable;
}

base::Result<std::unique_ptr<Transport>> open(const std::string& name, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment) {
  const Wanted wanted(name);
  const Entry* near = find(wanted.near);
  const Entry* far = find(wanted.far);
  if (!is_known(name)) return fail_unknown(name);
  auto transport =
      far == nullptr ? near->open(bootstrap, environment) : joint::open(*near, *far, bootstrap, environment);
  if (!transport || !wanted.faulty) return transport;
  return fault::decorate(std::move(*transport), bootstrap.rank(), environment);
}

bool one_thread(const std::string& name, const base::Environment& environment) {
  const Wanted wanted(name);
  const auto says = [&](const Entry* entry) {
    return entry != nullptr && entry->one_thread != nullptr && entry->one_thread(environment);
  };
  return says(find(wanted.near)) || says(find(wanted.far));
}

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
  if (list.empty() || is_known(list)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG,
                    "HEDDLE_TRANSPORTS=\"%s\" is neither a transport nor two, NEAR,FAR; `heddle info` lists them",
                    list.c_str());
}

base::Result<std::string> choose(const char* asked, const bootstrap::Bootstrap& bootstrap, const base::Config& config) {
  if (const base::Status status = check_choice(asked, config); status != HEDDLE_DONE) return status;
  if (asked != nullptr && asked != kAuto) return std::string(asked);
  const std::string& one = config.text(base::Var::transport);
  if (one != kAuto) return one;
  const std::string& list = config.text(base::Var::transports);
  return choose_among(list.empty() ? kUsualList : list, bootstrap, config.number(base::Var::node_ranks));
}

}  // namespace heddle::transport
