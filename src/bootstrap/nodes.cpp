#include "bootstrap/nodes.hpp"

namespace heddle::bootstrap {

std::vector<std::uint32_t> nodes_of(const Bootstrap& bootstrap, std::uint64_t most) {
  struct Filling {
    std::uint32_t node = 0;
    std::uint64_t ranks = 0;
  };
  std::vector<Filling> of_host(bootstrap.size());  // node for the machine's next rank
  std::vector<std::uint32_t> nodes(bootstrap.size());
  std::uint32_t next = 0;
  for (std::uint32_t rank = 0; rank < nodes.size(); ++rank) {
    Filling& filling = of_host[bootstrap.host(rank)];
    if (filling.ranks == 0 || filling.ranks == most) filling = {next++, 0};
    ++filling.ranks;
    nodes[rank] = filling.node;
  }
  return nodes;
}

}  // namespace heddle::bootstrap
