// The table of transports. A new transport is a folder and a row here.
#include <array>
#include <string>

#include "transport/fault/fault.hpp"
#include "transport/joint/joint.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/names.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/shm/shm.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/ucx.hpp"
#include "transport/utofu/utofu.hpp"
#include "transport/verbs/verbs.hpp"

namespace heddle::transport {
namespace {

// What is in a network's row if the headers of its library were not found, or not wanted, when this
// library was built.
template <const char* kSaid>
base::Status left_out(const base::Environment&) {
  return base::fail(HEDDLE_ERR_CONFIG, "%s", kSaid);
}
template <const char* kSaid>
base::Result<std::unique_ptr<Transport>> open_left_out(bootstrap::Bootstrap&, const base::Environment& environment) {
  return left_out<kSaid>(environment);
}
#if !HEDDLE_HAS_UCX
constexpr char kNoUcx[] =
    "this Heddle was built without the ucx transport; build it with -DHEDDLE_UCX=ON where UCX is installed, or choose "
    "another HEDDLE_TRANSPORT";
#endif
#if !HEDDLE_HAS_OFI
constexpr char kNoOfi[] =
    "this Heddle was built without the ofi transport; build it with -DHEDDLE_OFI=ON where libfabric is installed, or "
    "choose another HEDDLE_TRANSPORT";
#endif
#if !HEDDLE_HAS_VERBS
constexpr char kNoVerbs[] =
    "this Heddle was built without the verbs transport; build it with -DHEDDLE_VERBS=ON where libibverbs is installed, "
    "or choose another HEDDLE_TRANSPORT";
#endif

constexpr std::array kTable = {
    TransportRow{.name = "shm",
                 .help = "processes of one machine through shared memory",
                 .open = shm::open,
                 .one_node = true,
                 .anywhere = true},
    TransportRow{.name = "utofu",
                 .help = "Tofu interconnect D through libtofucom, or its emulator",
                 .open = utofu::open,
                 .one_thread = utofu::one_thread},
    TransportRow{.name = "ucx",
                 .help = "other machines, through UCX: InfiniBand, RoCE, TCP and what else it reaches",
#if HEDDLE_HAS_UCX
                 .open = ucx::open,
                 .probe = ucx::probe},
#else
                 .open = open_left_out<kNoUcx>,
                 .probe = left_out<kNoUcx>},
#endif
    TransportRow{.name = "ofi",
                 .help = "other machines, through libfabric: Slingshot, EFA, Omni-Path, TCP and what else it reaches",
#if HEDDLE_HAS_OFI
                 .open = ofi::open,
                 .probe = ofi::probe,
                 .probe_own = ofi::probe_own},
#else
                 .open = open_left_out<kNoOfi>,
                 .probe = left_out<kNoOfi>,
                 .probe_own = left_out<kNoOfi>},
#endif
    TransportRow{.name = "verbs",
                 .help = "other machines by their InfiniBand and RoCE adapters, without a library between",
#if HEDDLE_HAS_VERBS
                 .open = verbs::open,
                 .probe = verbs::probe},
#else
                 .open = open_left_out<kNoVerbs>,
                 .probe = left_out<kNoVerbs>},
#endif
    TransportRow{.name = "loopback",
                 .help = "ranks of one process, the reference for tests",
                 .open = loopback::open,
                 .anywhere = true,
                 .for_tests = true},
    TransportRow{.name = "loopback-messages",
                 .help = "loopback with messages only: everything else is built by the protocol layer",
                 .open = loopback::open_messages_only,
                 .anywhere = true,
                 .for_tests = true},
};

}  // namespace

std::span<const TransportRow> table() {
  return kTable;
}

const TransportRow* find(std::string_view name) {
  for (const TransportRow& entry : kTable) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

bool is_known(const std::string& name) {
  const WantedTransports wanted(name);
  const bool ends_with_comma = !name.empty() && name.back() == ',';
  return find(wanted.near) != nullptr && (wanted.far.empty() || find(wanted.far) != nullptr) && !ends_with_comma;
}

base::Status fail_unknown(const std::string& name) {
  std::string names;
  for (const TransportRow& entry : kTable) names += std::string(names.empty() ? "" : ", ") + entry.name;
  return base::fail(HEDDLE_ERR_CONFIG,
                    "there is no transport \"%s\"; there are %s, each also as fault+NAME, and NEAR,FAR for two of them",
                    name.c_str(), names.c_str());
}

base::Result<std::unique_ptr<Transport>> open(const std::string& name, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment) {
  const WantedTransports wanted(name);
  const TransportRow* near = find(wanted.near);
  const TransportRow* far = find(wanted.far);
  if (!is_known(name)) return fail_unknown(name);
  auto transport =
      far == nullptr ? near->open(bootstrap, environment) : joint::open(*near, *far, bootstrap, environment);
  if (!transport || !wanted.faulty) return transport;
  return fault::decorate(std::move(*transport), bootstrap.rank(), environment);
}

bool one_thread(const std::string& name, const base::Environment& environment) {
  const WantedTransports wanted(name);
  const auto says = [&](const TransportRow* entry) {
    return entry != nullptr && entry->one_thread != nullptr && entry->one_thread(environment);
  };
  return says(find(wanted.near)) || says(find(wanted.far));
}

}  // namespace heddle::transport
