// Reductions and scans. Every result is computed in the order of the members, so that
// floating-point results are equal on all PEs.
//
// Small vectors: every member sends its vector to every member (groups.hpp: contributions), and
// each computes the result itself. Large vectors: after a sync, member i computes the i-th part of
// the result from all sources and puts it into all dests. This needs no other memory. Since no
// other member touches the i-th parts, dest may be source.
#pragma once

#include <cstddef>
#include <type_traits>

#include "openshmem/collectives.hpp"

namespace heddle::shmem {

// An operation on elements, without their type.
struct ElementReduction {
  // into[i] = into[i] op from[i]
  void (*combine)(void* into, const void* from, std::size_t elements);
  std::size_t element_bytes;
};

int reduce_elements(Call call, Group& group, void* dest, const void* source, std::size_t elements,
                    const ElementReduction& reduction);
enum class Scan : bool { exclusive, inclusive };
int scan_elements(Call call, Group& group, void* dest, const void* source, std::size_t elements,
                  const ElementReduction& reduction, Scan scan);

// Integers overflow as the processor's do: they wrap.
template <class T>
struct Arithmetic {
  using type = T;
};
template <class T>
  requires std::is_integral_v<T>
struct Arithmetic<T> {
  using type = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

struct BitAnd {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Sum {
  template <class T>
  static T apply(T a, T b) {
    using A = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<A>(a) + static_cast<A>(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    using A = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<A>(a) * static_cast<A>(b));
  }
};

template <class Op, class T>
void combine(void* into, const void* from, std::size_t elements) {
  T* __restrict left = static_cast<T*>(into);
  const T* __restrict right = static_cast<const T*>(from);
  for (std::size_t i = 0; i < elements; ++i) left[i] = Op::apply(left[i], right[i]);
}
template <class Op, class T>
inline constexpr ElementReduction kReduction{&combine<Op, T>, sizeof(T)};

template <class Op, class T>
inline int reduce(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nreduce) {
  return reduce_elements(call, checked_team(call, team), dest, source, nreduce, kReduction<Op, T>);
}
template <class T>
inline int sum_inscan(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems) {
  return scan_elements(call, checked_team(call, team), dest, source, nelems, kReduction<Sum, T>, Scan::inclusive);
}
template <class T>
inline int sum_exscan(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems) {
  return scan_elements(call, checked_team(call, team), dest, source, nelems, kReduction<Sum, T>, Scan::exclusive);
}

void reduce_active(Call call, void* dest, const void* source, int nreduce, const ActiveSet& set,
                   const ElementReduction& reduction);
// pWrk is not needed.
template <class Op, class T>
inline void to_all(Call call, T* dest, const T* source, int nreduce, int PE_start, int logPE_stride, int PE_size,
                   T* /*pWrk*/, long* pSync) {
  reduce_active(call, dest, source, nreduce, {PE_start, logPE_stride, PE_size, pSync}, kReduction<Op, T>);
}

}  // namespace heddle::shmem
