// The transports there are. A new one is a folder and a row here.
#include <array>
#include <string>

#include "transport/fault/fault.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/shm/shm.hpp"
#include "transport/transport.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport {
namespace {

constexpr std::array kTable = {
    Entry{"shm", "processes of one machine through shared memory", shm::open},
    Entry{"utofu", "Tofu interconnect D through libtofucom, or its emulator", utofu::open},
    Entry{"loopback", "ranks of one process, the reference for tests", loopback::open},
    Entry{"loopback-messages", "loopback with messages only: everything else is built by the protocol layer",
          loopback::open_messages_only},
};

constexpr std::string_view kFaultPrefix = "fault+";

}  // namespace

std::span<const Entry> table() {
  return kTable;
}

base::Result<std::unique_ptr<Transport>> open(const std::string& name, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment) {
  const bool faulty = name.starts_with(kFaultPrefix);
  const std::string inner = faulty ? name.substr(kFaultPrefix.size()) : name;
  for (const Entry& entry : kTable) {
    if (inner != entry.name) continue;
    auto transport = entry.open(bootstrap, environment);
    if (!transport || !faulty) return transport;
    return fault::decorate(std::move(*transport), bootstrap.rank(), environment);
  }
  std::string names;
  for (const Entry& entry : kTable) names += std::string(names.empty() ? "" : ", ") + entry.name;
  return base::fail(HEDDLE_ERR_CONFIG, "there is no transport \"%s\"; there are %s, each also as fault+NAME",
                    name.c_str(), names.c_str());
}

}  // namespace heddle::transport
