// Memory of this transport's own that the adapter reads or writes. It has its pages for itself. If
// the kernel does not copy such pages at a fork, libibverbs leaves them out of the child, and the
// child must not miss other data on them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

class OwnMemory {
 public:
  OwnMemory() = default;
  ~OwnMemory() { close(); }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  // Zeros. NO_MEMORY.
  base::Status open(const Adapter& adapter, std::size_t bytes, int rights);
  // The adapter uses it no more.
  void close();
  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::uint32_t lkey() const { return registered_->lkey; }

 private:
  const Adapter* adapter_ = nullptr;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
  ibv_mr* registered_ = nullptr;
};

}  // namespace heddle::transport::verbs
