// Copying data between memory of any layout and its packed form.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstring>
#include <units/packing.hpp>

#include "mpi/communicators/comm.hpp"
#include "mpi/types/layout.hpp"
#include "mpi/types/loops.hpp"
#include "mpi/types/type.hpp"

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
  walk(count, static_cast<const TypeLayout&>(type), mover);
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

// MPI_Pack, MPI_Unpack and their forms for external32.

namespace {

// The part that all functions share: the data, checked, and the bytes of its packed form.
struct PackedData {
  Type* type = nullptr;
  MPI_Count bytes = 0;
};

int check_data(MPI_Count count, MPI_Datatype datatype, bool external, PackedData* data) {
  if (const int code = committed_type(datatype, "datatype", &data->type)) return code;
  if (count < 0)
    return error(MPI_ERR_COUNT, "the count is %lld: it must not be negative", static_cast<long long>(count));
  MPI_Count native = 0;
  if (__builtin_mul_overflow(count, data->type->size, &native))
    return error(MPI_ERR_COUNT, "%lld elements of the datatype are more bytes than 64 bits count",
                 static_cast<long long>(count));
  data->bytes = external ? count * external_size(*data->type) : native;  // which is not longer
  return MPI_SUCCESS;
}

// The program's data may be at MPI_BOTTOM, which is a null pointer, by a datatype with addresses.
int check_buffer(const void* buffer, const char* name, const PackedData& data) {
  if (buffer == MPI_BOTTOM && data.bytes != 0 && data.type->predefined)
    return error(MPI_ERR_BUFFER, "%s is a null pointer", name);
  return MPI_SUCCESS;
}

// The packed form lies in a buffer of `size` bytes, from `position` on.
int check_packed(const void* packed, const char* name, MPI_Count size, const CountOut& position,
                 const PackedData& data) {
  if (!position.present()) return null_argument("position");
  if (size < 0)
    return error(MPI_ERR_ARG, "the size of %s is %lld: it must not be negative", name, static_cast<long long>(size));
  const MPI_Count at = position.get();
  if (at < 0 || at > size)
    return error(MPI_ERR_ARG, "position is %lld: it must be from 0 to the size of %s, which is %lld",
                 static_cast<long long>(at), name, static_cast<long long>(size));
  if (data.bytes > size - at)
    return error(MPI_ERR_ARG, "the data is %lld bytes: %s has %lld from the position on",
                 static_cast<long long>(data.bytes), name, static_cast<long long>(size - at));
  if (packed == nullptr && data.bytes != 0) return null_argument(name);
  return MPI_SUCCESS;
}

int check_representation(const char* datarep) {
  if (datarep == nullptr) return null_argument("datarep");
  if (std::strcmp(datarep, "external32") == 0) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "datarep is \"%s\": it must be \"external32\"", datarep);
}

int find_comm_of(MPI_Comm handle, Comm** comm) {
  *comm = comm_of(handle);
  return *comm == nullptr ? bad_comm(handle) : MPI_SUCCESS;
}

}  // namespace

int pack(Call call, const void* inbuf, MPI_Count incount, MPI_Datatype datatype, void* outbuf, MPI_Count outsize,
         CountOut position, MPI_Comm comm) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, false, &data);
  if (code == MPI_SUCCESS) code = check_buffer(inbuf, "inbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(outbuf, "outbuf", outsize, position, data);
  if (code != MPI_SUCCESS) return told(call, of, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) pack(inbuf, incount, *data.type, static_cast<std::byte*>(outbuf) + at);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int unpack(Call call, const void* inbuf, MPI_Count insize, CountOut position, void* outbuf, MPI_Count outcount,
           MPI_Datatype datatype, MPI_Comm comm) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(outcount, datatype, false, &data);
  if (code == MPI_SUCCESS) code = check_buffer(outbuf, "outbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(inbuf, "inbuf", insize, position, data);
  if (code != MPI_SUCCESS) return told(call, of, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) unpack(static_cast<const std::byte*>(inbuf) + at, data.bytes, outbuf, outcount, *data.type);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int pack_size(Call call, MPI_Count incount, MPI_Datatype datatype, MPI_Comm comm, CountOut size) {
  Comm* of = nullptr;
  PackedData data;
  int code = find_comm_of(comm, &of);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, false, &data);
  if (code == MPI_SUCCESS && !size.present()) code = null_argument("size");
  if (code != MPI_SUCCESS) return told(call, of, code);
  size.set(data.bytes);
  return MPI_SUCCESS;
}

int pack_external(Call call, const char* datarep, const void* inbuf, MPI_Count incount, MPI_Datatype datatype,
                  void* outbuf, MPI_Count outsize, CountOut position) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, true, &data);
  if (code == MPI_SUCCESS) code = check_buffer(inbuf, "inbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(outbuf, "outbuf", outsize, position, data);
  if (code != MPI_SUCCESS) return told(call, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) code = pack_external(inbuf, incount, *data.type, static_cast<std::byte*>(outbuf) + at);
  if (code == MPI_SUCCESS) position.set(at + data.bytes);
  return told(call, code);
}

int unpack_external(Call call, const char* datarep, const void* inbuf, MPI_Count insize, CountOut position,
                    void* outbuf, MPI_Count outcount, MPI_Datatype datatype) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(outcount, datatype, true, &data);
  if (code == MPI_SUCCESS) code = check_buffer(outbuf, "outbuf", data);
  if (code == MPI_SUCCESS) code = check_packed(inbuf, "inbuf", insize, position, data);
  if (code != MPI_SUCCESS) return told(call, code);
  const MPI_Count at = position.get();
  if (data.bytes != 0) unpack_external(static_cast<const std::byte*>(inbuf) + at, outbuf, outcount, *data.type);
  position.set(at + data.bytes);
  return MPI_SUCCESS;
}

int pack_external_size(Call call, const char* datarep, MPI_Count incount, MPI_Datatype datatype, CountOut size) {
  PackedData data;
  int code = check_representation(datarep);
  if (code == MPI_SUCCESS) code = check_data(incount, datatype, true, &data);
  if (code == MPI_SUCCESS && !size.present()) code = null_argument("size");
  if (code != MPI_SUCCESS) return told(call, code);
  size.set(data.bytes);
  return MPI_SUCCESS;
}

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

MPI_Count external_size(const TypeLayout& layout) {
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
