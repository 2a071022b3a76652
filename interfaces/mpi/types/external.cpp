#include "mpi/types/external.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstring>

#include "mpi/types/basic.hpp"
#include "mpi/types/signature.hpp"

namespace heddle::mpi {
namespace {

// ---- one basic type -----------------------------------------------------------------------------

enum class Rule : std::uint8_t {
  order,          // the bytes in the other order
  narrow_signed,  // an integer of fewer bytes
  narrow_unsigned,
  extended,  // x87's long double, as the IEEE type of 16 bytes
};

struct Format {
  Rule rule;
  std::size_t native;
  std::size_t external;
  MPI_Count units;  // numbers of this kind in one
};

Format format_of(const Type& basic) {
  const auto size = static_cast<std::size_t>(basic.size);
  constexpr Rule kLongDouble = LDBL_MANT_DIG == 64 ? Rule::extended : Rule::order;
  switch (basic.basic) {
    case Basic::byte:
      return {Rule::order, 1, 1, basic.size};
    case Basic::character:
      if (&basic == basic_type(MPI_WCHAR)) return {Rule::narrow_unsigned, size, 2, 1};
      return {Rule::order, size, size, 1};
    case Basic::long_double:
      return {kLongDouble, size, 16, 1};
    case Basic::complex_long_double:
      return {kLongDouble, size / 2, 16, 2};
    case Basic::complex_half:
    case Basic::complex_float:
    case Basic::complex_double:
    case Basic::complex_quad:
      return {Rule::order, size / 2, size / 2, 2};
    default:
      break;
  }
  if (&basic == basic_type(MPI_LONG)) return {Rule::narrow_signed, size, 4, 1};
  if (&basic == basic_type(MPI_UNSIGNED_LONG)) return {Rule::narrow_unsigned, size, 4, 1};
  return {Rule::order, size, size, 1};
}

// Between this machine's order and most significant byte first.
void swap_order(const std::byte* from, std::byte* to, std::size_t bytes) {
  if constexpr (std::endian::native == std::endian::big)
    std::memcpy(to, from, bytes);
  else
    std::reverse_copy(from, from + bytes, to);
}

std::uint64_t read_native(const std::byte* from, std::size_t bytes) {
  if (bytes == 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, 8);
    return value;
  }
  std::uint32_t value = 0;
  std::memcpy(&value, from, 4);
  return value;
}

void write_native(std::uint64_t value, std::byte* to, std::size_t bytes) {
  const auto low = static_cast<std::uint32_t>(value);
  if (bytes == 8)
    std::memcpy(to, &value, 8);
  else
    std::memcpy(to, &low, 4);
}

bool fits_external(std::uint64_t value, const Format& format) {
  if (format.rule == Rule::narrow_unsigned) return value >> (8 * format.external) == 0;
  const auto number = static_cast<std::int64_t>(value);
  return number >= INT32_MIN && number <= INT32_MAX;
}

#if LDBL_MANT_DIG == 64
__extension__ typedef __float128 Quad;
#else
using Quad = long double;
#endif

// False: the value does not fit.
bool convert_out(const Format& format, const std::byte* native, std::byte* external) {
  switch (format.rule) {
    case Rule::order:
      swap_order(native, external, format.native);
      return true;
    case Rule::extended: {
      long double value = 0;
      std::memcpy(&value, native, sizeof value);
      const Quad quad = value;
      swap_order(reinterpret_cast<const std::byte*>(&quad), external, 16);
      return true;
    }
    default:
      break;
  }
  const std::uint64_t value = read_native(native, format.native);
  if (!fits_external(value, format)) return false;
  for (std::size_t i = 0; i < format.external; ++i)
    external[i] = static_cast<std::byte>(value >> (8 * (format.external - 1 - i)));
  return true;
}

void convert_in(const Format& format, const std::byte* external, std::byte* native) {
  switch (format.rule) {
    case Rule::order:
      swap_order(external, native, format.native);
      return;
    case Rule::extended: {
      Quad quad = 0;
      swap_order(external, reinterpret_cast<std::byte*>(&quad), 16);
      const auto value = static_cast<long double>(quad);
      std::memset(native, 0, sizeof value);
      std::memcpy(native, &value, 10);
      return;
    }
    default:
      break;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < format.external; ++i) value = value << 8 | static_cast<std::uint64_t>(external[i]);
  if (format.rule == Rule::narrow_signed && value >> 31 != 0) value |= ~std::uint64_t{0} << 32;
  write_native(value, native, format.native);
}

MPI_Count external_size_of_basic(const Type& basic) {
  if (basic.basic == Basic::pair) {
    const PairParts parts = parts_of_pair(basic);
    return external_size_of_basic(*parts.value) + external_size_of_basic(*parts.index);
  }
  const Format format = format_of(basic);
  return format.units * static_cast<MPI_Count>(format.external);
}

MPI_Count external_size_of(const Signature& signature) {
  MPI_Count bytes = 0;
  for (const Signature::Run& run : signature.runs)
    bytes += run.times * (run.basic != nullptr ? external_size_of_basic(*run.basic) : external_size_of(*run.inner));
  return bytes;
}

// ---- data ---------------------------------------------------------------------------------------

// The packed form of the program's data, in pieces.
class Window {
 public:
  Window(const void* buffer, MPI_Count count, const Type& type)
      : buffer_(const_cast<void*>(buffer)), count_(count), type_(type), total_(count * type.size) {}

  // The next `bytes` bytes, a number's.
  const std::byte* read(std::size_t bytes) {
    if (end_ - at_ < bytes) {
      std::memmove(chunk_, chunk_ + at_, end_ - at_);
      end_ -= at_;
      at_ = 0;
      const auto more = std::min(static_cast<MPI_Count>(sizeof chunk_ - end_), total_ - done_);
      pack_part(buffer_, count_, type_, done_, more, chunk_ + end_);
      done_ += more;
      end_ += static_cast<std::size_t>(more);
    }
    at_ += bytes;
    return chunk_ + at_ - bytes;
  }
  // The place to store the next bytes.
  std::byte* write(std::size_t bytes) {
    if (sizeof chunk_ - at_ < bytes) flush();
    at_ += bytes;
    return chunk_ + at_ - bytes;
  }
  void flush() {
    unpack_part(chunk_, done_, static_cast<MPI_Count>(at_), buffer_, count_, type_);
    done_ += static_cast<MPI_Count>(at_);
    at_ = 0;
  }

 private:
  void* buffer_;
  MPI_Count count_;
  const Type& type_;
  MPI_Count total_;
  MPI_Count done_ = 0;  // of the packed form
  std::size_t at_ = 0;
  std::size_t end_ = 0;
  std::byte chunk_[8192];
};

// Calls convert(format) for each number of `times` elements of a basic type; false from it ends it.
template <class Convert>
bool each_number(const Type& basic, MPI_Count times, Convert&& convert) {
  if (basic.basic == Basic::pair) {
    const PairParts parts = parts_of_pair(basic);
    const Format value = format_of(*parts.value);
    const Format index = format_of(*parts.index);
    for (MPI_Count i = 0; i < times; ++i)
      if (!convert(value) || !convert(index)) return false;
    return true;
  }
  const Format format = format_of(basic);
  const MPI_Count numbers = times * format.units;
  for (MPI_Count i = 0; i < numbers; ++i)
    if (!convert(format)) return false;
  return true;
}

}  // namespace

MPI_Count external_size(const Layout& layout) {
  if (layout.size == 0) return 0;
  if (layout.signature != nullptr) return external_size_of(*layout.signature);
  return layout.elements * external_size_of_basic(*layout.element);
}

int pack_external(const void* buffer, MPI_Count count, const Type& type, void* external) {
  Window window(buffer, count, type);
  auto* out = static_cast<std::byte*>(external);
  const Type* bad = nullptr;
  const auto convert = [&](const Format& format) {
    if (!convert_out(format, window.read(format.native), out)) return false;
    out += format.external;
    return true;
  };
  each_run(count, type, [&](const Type& basic, MPI_Count times) {
    if (each_number(basic, times, convert)) return true;
    bad = &basic;
    return false;
  });
  if (bad == nullptr) return MPI_SUCCESS;
  return error(MPI_ERR_VALUE_TOO_LARGE, "a value of %s does not fit in external32, which has %lld bytes for it",
               bad->name.c_str(), static_cast<long long>(external_size_of_basic(*bad)));
}

void unpack_external(const void* external, void* buffer, MPI_Count count, const Type& type) {
  Window window(buffer, count, type);
  const auto* in = static_cast<const std::byte*>(external);
  each_run(count, type, [&](const Type& basic, MPI_Count times) {
    return each_number(basic, times, [&](const Format& format) {
      convert_in(format, in, window.write(format.native));
      in += format.external;
      return true;
    });
  });
  window.flush();
}

}  // namespace heddle::mpi
