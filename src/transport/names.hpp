// Names of transports as users write them.
#pragma once

#include <string>
#include <string_view>

#include "transport/transport.hpp"

namespace heddle::transport {

inline constexpr std::string_view kFaultPrefix = "fault+";

// "fault+NEAR,FAR": all but NEAR may be missing.
struct WantedTransports {
  bool faulty = false;
  std::string_view near;
  std::string_view far;  // empty: `near` reaches all ranks

  explicit WantedTransports(std::string_view name) : faulty(name.starts_with(kFaultPrefix)) {
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

// The row of the table with that name, or null.
const TransportRow* find(std::string_view name);
// One transport, or NEAR,FAR.
bool is_known(const std::string& name);
// CONFIG; the message lists the transports.
base::Status fail_unknown(const std::string& name);

// The transport that a job on several nodes would use between them, by the settings, if all
// machines were like this one. CONFIG: nothing can be used, and why; also if a transport that
// reaches only one node is named alone.
base::Result<Choice> network_here(const base::Environment& environment);

}  // namespace heddle::transport
