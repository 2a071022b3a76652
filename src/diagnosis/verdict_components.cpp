#include <algorithm>

#include "diagnosis/verdict_graph.hpp"

namespace heddle::diagnosis {

// Tarjan's algorithm, without recursion.
std::vector<std::uint32_t> components_of(const std::vector<std::vector<std::uint32_t>>& arcs) {
  struct Visit {
    std::uint32_t node;
    std::size_t next = 0;
  };
  const auto count = static_cast<std::uint32_t>(arcs.size());
  std::vector<std::uint32_t> order(count), low(count), component(count, tap::kNobody), open;
  std::uint32_t seen = 0;
  std::uint32_t found = 0;
  std::vector<Visit> path;
  for (std::uint32_t root = 0; root < count; ++root) {
    if (order[root] != 0) continue;
    path.push_back({root});
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::uint32_t node = visit.node;
      if (visit.next == 0 && order[node] == 0) {
        order[node] = low[node] = ++seen;
        open.push_back(node);
      }
      if (visit.next < arcs[node].size()) {
        const std::uint32_t to = arcs[node][visit.next++];
        if (order[to] == 0) {
          path.push_back({to});
        } else if (component[to] == tap::kNobody) {
          low[node] = std::min(low[node], order[to]);
        }
        continue;
      }
      if (low[node] == order[node]) {
        std::uint32_t member = 0;
        do {
          member = open.back();
          open.pop_back();
          component[member] = found;
        } while (member != node);
        ++found;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[node]);
    }
  }
  return component;
}

}  // namespace heddle::diagnosis
