// The transports between nodes, for tests of jobs that run over each of them. CMake says which of
// them this build has (heddle_over_networks).
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "transport/test/ofi_available.hpp"
#include "transport/test/ucx_available.hpp"

namespace heddle::tests {

struct Network {
  const char* name;
  std::vector<std::string> variables;  // to be set besides HEDDLE_TRANSPORTS
  std::string skipped;                 // why it cannot be tried, or empty

  // Options of `heddle run` for a job over this transport alone.
  [[nodiscard]] std::vector<std::string> alone() const { return with({std::string("HEDDLE_TRANSPORTS=") + name}); }
  // For one of nodes of so many ranks, which share memory.
  [[nodiscard]] std::vector<std::string> joined(int node_ranks) const {
    return with({std::string("HEDDLE_TRANSPORTS=shm,") + name, "HEDDLE_NODE_RANKS=" + std::to_string(node_ranks)});
  }

 private:
  [[nodiscard]] std::vector<std::string> with(const std::vector<std::string>& more) const {
    std::vector<std::string> options;
    for (const auto* list : {&more, &variables}) {
      for (const std::string& variable : *list) options.insert(options.end(), {"--env", variable});
    }
    return options;
  }
};
[[maybe_unused]] inline std::ostream& operator<<(std::ostream& out, const Network& network) {
  return out << network.name;
}

inline Network ucx() {
  return {"ucx", {"HEDDLE_UCX_TLS=tcp"}, transport::ucx::why_no_ucx()};
}
inline Network ofi() {
  return {"ofi", {"HEDDLE_NET_DEVICES=lo"}, transport::ofi::why_no_ofi()};
}

// UCX itself may end a survivor (docs/guide.md, limits): by an assertion, which its own later
// releases have not, and where it answers a request of the dead. Nothing else may, and nobody may
// hang.
[[maybe_unused]] inline bool ended_by_ucx(const std::string& err) {
  for (const char* words : {"ucp_request.c:", "ucp_request.inl:", "wireup_ep.c:", "tcp_ep.c:"}) {
    for (std::size_t at = 0; (at = err.find(words, at)) != std::string::npos; ++at) {
      const std::string line = err.substr(at, err.find('\n', at) - at);
      if (line.find("Assertion `") != std::string::npos || line.find("Fatal: ") != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace heddle::tests
