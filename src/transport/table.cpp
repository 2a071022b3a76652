// The transports there are. A new one is a folder and a row here.
#include <array>
#include <string>

#include "transport/fault/fault.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/shm/shm.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/ucx.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport {
namespace {

constexpr std::array kTable = {
    Entry{"shm", "processes of one machine through shared memory", shm::open},
    Entry{"utofu", "Tofu interconnect D through libtofucom, or its emulator", utofu::open, utofu::one_thread},
    Entry{"ucx", "other machines, through UCX: InfiniBand, RoCE, TCP and what else it reaches", ucx::open},
    Entry{"loopback", "ranks of one process, the reference for tests", loopback::open},
    Entry{"loopback-messages", "loopback with messages only: everything else is built by the protocol layer",
          loopback::open_messages_only},
};

constexpr std::string_view kFaultPrefix = "fault+";

struct Wanted {
  const Entry* entry = nullptr;  // null: there is no such transport
  bool faulty = false;
};
Wanted find(std::string_view name) {
  Wanted wanted;
  wanted.faulty = name.starts_with(kFaultPrefix);
  if (wanted.faulty) name.remove_prefix(kFaultPrefix.size());
  for (const Entry& entry : kTable) {
    if (name == entry.name) wanted.entry = &entry;
  }
  return wanted;
}

}  // namespace

std::span<const Entry> table() {
  return kTable;
}

base::Result<std::unique_ptr<Transport>> open(const std::string& name, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment) {
  const Wanted wanted = find(name);
  if (wanted.entry != nullptr) {
    auto transport = wanted.entry->open(bootstrap, environment);
    if (!transport || !wanted.faulty) return transport;
    return fault::decorate(std::move(*transport), bootstrap.rank(), environment);
  }
  std::string names;
  for (const Entry& entry : kTable) names += std::string(names.empty() ? "" : ", ") + entry.name;
  return base::fail(HEDDLE_ERR_CONFIG, "there is no transport \"%s\"; there are %s, each also as fault+NAME",
                    name.c_str(), names.c_str());
}

bool one_thread(const std::string& name, const base::Environment& environment) {
  const Entry* entry = find(name).entry;
  return entry != nullptr && entry->one_thread != nullptr && entry->one_thread(environment);
}

}  // namespace heddle::transport
