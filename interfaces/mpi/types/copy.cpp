// Copying data between memory of any layout and its packed form.
#include <algorithm>
#include <cstring>

#include "mpi/types/loops.hpp"

namespace heddle::mpi {
namespace {

// Copies a fixed number of bytes, which compilers turn into loads and stores.
template <std::size_t kBytes, bool kPack>
[[gnu::always_inline]] inline void move_one(std::byte* data, std::byte* packed) {
  if constexpr (kPack)
    std::memcpy(packed, data, kBytes);
  else
    std::memcpy(data, packed, kBytes);
}

// Moves the blocks of a walk between `data` and the packed form, in order.
template <bool kPack>
class Mover {
 public:
  Mover(const void* data, const void* packed)
      : data_(const_cast<std::byte*>(static_cast<const std::byte*>(data))),
        packed_(const_cast<std::byte*>(static_cast<const std::byte*>(packed))) {}

  void block(MPI_Count offset, MPI_Count bytes) {
    std::byte* const at = data_ + offset;
    if (bytes == 8)
      move_one<8, kPack>(at, packed_);
    else if (bytes == 4)
      move_one<4, kPack>(at, packed_);
    else
      move(at, packed_, static_cast<std::size_t>(bytes));
    packed_ += bytes;
  }
  void blocks(MPI_Count offset, MPI_Count count, MPI_Count stride, MPI_Count bytes) {
    const auto place = [offset, stride](MPI_Count i) { return offset + i * stride; };
    sized(place, count, bytes);
  }
  void scattered(MPI_Count offset, const MPI_Count* offsets, MPI_Count count, MPI_Count bytes) {
    const auto place = [offset, offsets](MPI_Count i) { return offset + offsets[i]; };
    sized(place, count, bytes);
  }

 private:
  static void move(std::byte* data, std::byte* packed, std::size_t bytes) {
    if constexpr (kPack)
      std::memcpy(packed, data, bytes);
    else
      std::memcpy(data, packed, bytes);
  }
  template <class Place>
  void sized(Place place, MPI_Count count, MPI_Count bytes) {
    switch (bytes) {
      case 1:
        return fixed<1>(place, count);
      case 2:
        return fixed<2>(place, count);
      case 4:
        return fixed<4>(place, count);
      case 8:
        return fixed<8>(place, count);
      case 12:
        return fixed<12>(place, count);
      case 16:
        return fixed<16>(place, count);
      case 24:
        return fixed<24>(place, count);
      case 32:
        return fixed<32>(place, count);
      case 64:
        return fixed<64>(place, count);
      default:
        break;
    }
    for (MPI_Count i = 0; i < count; ++i) {
      move(data_ + place(i), packed_, static_cast<std::size_t>(bytes));
      packed_ += bytes;
    }
  }
  // Passed by value, with copies of the members. Otherwise the compiler must assume that stores of
  // bytes change the objects that the members refer to.
  template <std::size_t kBytes, class Place>
  void fixed(Place place, MPI_Count count) {
    std::byte* const data = data_;
    std::byte* const packed = packed_;
    constexpr auto kStep = static_cast<MPI_Count>(kBytes);
    MPI_Count i = 0;
    for (; i + 4 <= count; i += 4) {
      move_one<kBytes, kPack>(data + place(i), packed + i * kStep);
      move_one<kBytes, kPack>(data + place(i + 1), packed + (i + 1) * kStep);
      move_one<kBytes, kPack>(data + place(i + 2), packed + (i + 2) * kStep);
      move_one<kBytes, kPack>(data + place(i + 3), packed + (i + 3) * kStep);
    }
    for (; i < count; ++i) move_one<kBytes, kPack>(data + place(i), packed + i * kStep);
    packed_ = packed + count * kStep;
  }

  std::byte* data_;
  std::byte* packed_;
};

// Copies between two memories of one layout.
class Twin {
 public:
  Twin(const void* from, void* to) : from_(static_cast<const std::byte*>(from)), to_(static_cast<std::byte*>(to)) {}
  void block(MPI_Count offset, MPI_Count bytes) {
    std::memcpy(to_ + offset, from_ + offset, static_cast<std::size_t>(bytes));
  }
  void blocks(MPI_Count offset, MPI_Count count, MPI_Count stride, MPI_Count bytes) {
    for (MPI_Count i = 0; i < count; ++i) block(offset + i * stride, bytes);
  }
  void scattered(MPI_Count offset, const MPI_Count* offsets, MPI_Count count, MPI_Count bytes) {
    for (MPI_Count i = 0; i < count; ++i) block(offset + offsets[i], bytes);
  }

 private:
  const std::byte* from_;
  std::byte* to_;
};

MPI_Count bytes_in(MPI_Count count, const Type& type) {
  MPI_Count bytes = 0;
  return __builtin_mul_overflow(count, type.size, &bytes) ? INT64_MAX : bytes;
}

constexpr std::size_t kChunk = 16384;

}  // namespace

void pack(const void* buffer, MPI_Count count, const Type& type, void* packed) {
  Mover<true> mover(buffer, packed);
  walk(count, static_cast<const Layout&>(type), mover);
}

void pack_part(const void* buffer, MPI_Count count, const Type& type, MPI_Count from, MPI_Count bytes, void* packed) {
  Mover<true> mover(buffer, packed);
  walk_part(type, from, std::min(from + bytes, bytes_in(count, type)), mover);
}

void unpack(const void* packed, MPI_Count bytes, void* buffer, MPI_Count count, const Type& type) {
  unpack_part(packed, 0, bytes, buffer, count, type);
}

void unpack_part(const void* packed, MPI_Count from, MPI_Count bytes, void* buffer, MPI_Count count, const Type& type) {
  Mover<false> mover(buffer, packed);
  walk_part(type, from, std::min(from + bytes, bytes_in(count, type)), mover);
}

void copy(const void* from, MPI_Count from_count, const Type& from_type, void* to, MPI_Count to_count,
          const Type& to_type) {
  const MPI_Count bytes = std::min(bytes_in(from_count, from_type), bytes_in(to_count, to_type));
  if (bytes == 0) return;
  if (from_type.contiguous) return unpack(begin_of(from, from_type), bytes, to, to_count, to_type);
  if (to_type.contiguous) return pack_part(from, from_count, from_type, 0, bytes, begin_of(to, to_type));
  const bool same = from_type.loop == to_type.loop && from_type.size == to_type.size &&
                    from_type.extent == to_type.extent && from_type.true_lb == to_type.true_lb;
  if (same) {
    Twin twin(from, to);
    walk_part(from_type, 0, bytes, twin);
    return;
  }
  std::byte chunk[kChunk];
  for (MPI_Count done = 0; done < bytes;) {
    const MPI_Count part = std::min(bytes - done, static_cast<MPI_Count>(kChunk));
    pack_part(from, from_count, from_type, done, part, chunk);
    unpack_part(chunk, done, part, to, to_count, to_type);
    done += part;
  }
}

}  // namespace heddle::mpi
