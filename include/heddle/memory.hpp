// Memory of whole pages for std::vector and other containers, so that peers on the node can map all
// of it. Part of heddle.hpp, which includes it.
//
// malloc's memory begins within a page: the first and the last page of an adopted std::vector stay
// unmapped. So offset 0 is never mapped, and atomics and signals on these pages need the owner's
// progress.
#ifndef HEDDLE_MEMORY_HPP
#define HEDDLE_MEMORY_HPP

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

namespace heddle {

// Gives zeroed memory in whole pages of its own, from the system and back to it:
//   heddle::Vector<double> mine(n);  // std::vector<double, heddle::Allocator<double>>
//   heddle::Region region = context.adopt_memory(mine);  // all of it can be mapped
// Use it for memory that peers reach, not for many small pieces: each takes a page at least, and a
// system call. The memory needs no context, and outlives it. While it is a region the vector must
// not allocate anew (push_back and resize beyond its capacity, assignment, its end): release the
// region before. Swapping and moving the vector take its memory along.
template <class T>
class Allocator {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "peers read and write it as bytes");
  using value_type = T;
  using is_always_equal = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Allocator() noexcept = default;
  template <class U>
  Allocator(const Allocator<U>& /*other*/) noexcept {}  // NOLINT: implicit, as of every allocator

  [[nodiscard]] T* allocate(std::size_t count) {
    // half of all addresses: rounded up it is still a length
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_array_new_length();
    void* const at = mmap(nullptr, pages_of(count), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
  void deallocate(T* at, std::size_t count) noexcept { munmap(at, pages_of(count)); }

  friend bool operator==(const Allocator& /*one*/, const Allocator& /*other*/) noexcept { return true; }

 private:
  // One page at least, so that memory of no elements has an address of its own.
  static std::size_t pages_of(std::size_t count) noexcept {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return count == 0 ? page : (count * sizeof(T) + page - 1) / page * page;
  }
};

template <class T>
using Vector = std::vector<T, Allocator<T>>;

}  // namespace heddle

#endif  // HEDDLE_MEMORY_HPP
