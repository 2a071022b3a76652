#include "transport/verbs/own_memory.hpp"

#include <utility>

#include "transport/network/memory.hpp"

namespace heddle::transport::verbs {

base::Status OwnMemory::open(const Adapter& adapter, std::size_t bytes, int rights) {
  const auto mapped = network::map_memory(bytes);
  if (!mapped) return mapped.status();
  adapter_ = &adapter;
  begin_ = static_cast<std::byte*>(*mapped);
  bytes_ = bytes;
  registered_ = (adapter.call().reg_mr)(adapter.domain(), begin_, bytes, rights);
  if (registered_ != nullptr) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "%s registers no memory (ulimit -l says how much it may)",
                          adapter.name().c_str());
}

void OwnMemory::close() {
  if (registered_ != nullptr) adapter_->call().dereg_mr(std::exchange(registered_, nullptr));
  if (begin_ != nullptr) network::unmap_memory(std::exchange(begin_, nullptr), bytes_);
}

}  // namespace heddle::transport::verbs
