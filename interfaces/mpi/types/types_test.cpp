// Datatypes against a model that expands the type map entry by entry, as the standard defines it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "mpi/core/arguments.hpp"
#include "mpi/types/layout.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi::types_test {
namespace {

using Random = std::mt19937;

MPI_Count between(Random& random, MPI_Count low, MPI_Count high) {
  return std::uniform_int_distribution<MPI_Count>(low, high)(random);
}

// ---- the model ----------------------------------------------------------------------------------

struct Entry {
  const Type* basic;
  MPI_Count at;
};

struct Map {
  std::vector<Entry> entries;
  std::optional<MPI_Count> lb_marker;
  std::optional<MPI_Count> ub_marker;
  MPI_Count padding = 0;  // of structures
  int alignment = 1;

  [[nodiscard]] bool empty() const { return entries.empty() && !lb_marker; }
  [[nodiscard]] MPI_Count size() const {
    MPI_Count bytes = 0;
    for (const Entry& entry : entries) bytes += entry.basic->size;
    return bytes;
  }
  [[nodiscard]] MPI_Count low(bool of_data) const {
    MPI_Count found = INT64_MAX;
    for (const Entry& entry : entries)
      found = std::min(found, entry.at + (of_data ? entry.basic->true_lb : entry.basic->lb));
    return entries.empty() ? 0 : found;
  }
  [[nodiscard]] MPI_Count high(bool of_data) const {
    MPI_Count found = INT64_MIN;
    for (const Entry& entry : entries)
      found = std::max(found, entry.at + (of_data ? entry.basic->true_extent : entry.basic->extent));
    return entries.empty() ? 0 : found;
  }
  [[nodiscard]] MPI_Count lb() const { return lb_marker ? *lb_marker : bound_low; }
  [[nodiscard]] MPI_Count ub() const { return ub_marker ? *ub_marker : bound_high + padding; }
  [[nodiscard]] MPI_Count extent() const { return ub() - lb(); }
  void add(const Map& other, MPI_Count displacement) {
    if (other.empty()) return;
    alignment = std::max(alignment, other.alignment);
    for (const Entry& entry : other.entries) entries.push_back({entry.basic, entry.at + displacement});
    if (other.lb_marker) {
      const MPI_Count lb_at = *other.lb_marker + displacement;
      const MPI_Count ub_at = *other.ub_marker + displacement;
      lb_marker = lb_marker ? std::min(*lb_marker, lb_at) : lb_at;
      ub_marker = ub_marker ? std::max(*ub_marker, ub_at) : ub_at;
    } else {  // the padding of a structure counts in what contains it
      bound_low = bounded ? std::min(bound_low, other.lb() + displacement) : other.lb() + displacement;
      bound_high = bounded ? std::max(bound_high, other.ub() + displacement) : other.ub() + displacement;
      bounded = true;
    }
  }
  void resize(MPI_Count lb_at, MPI_Count extent_of) {
    lb_marker = lb_at;
    ub_marker = lb_at + extent_of;
  }

  MPI_Count bound_low = 0;
  MPI_Count bound_high = 0;
  bool bounded = false;
};

Map map_of_basic(const Type& basic) {
  Map map;
  map.entries.push_back({&basic, 0});
  map.alignment = basic.alignment;
  map.bound_high = basic.extent;
  map.bounded = true;
  return map;
}

void add_blocks(Map* map, const Map& old, MPI_Count length, MPI_Count displacement) {
  for (MPI_Count i = 0; i < length; ++i) map->add(old, displacement + i * old.extent());
}

// ---- random datatypes ---------------------------------------------------------------------------

struct Modelled {
  MPI_Datatype handle = MPI_DATATYPE_NULL;
  Map map;
};

const MPI_Datatype kBasics[] = {MPI_CHAR,       MPI_SHORT,           MPI_INT,       MPI_DOUBLE,    MPI_LONG_DOUBLE,
                                MPI_DOUBLE_INT, MPI_SHORT_INT,       MPI_FLOAT_INT, MPI_LONG,      MPI_C_DOUBLE_COMPLEX,
                                MPI_2REAL,      MPI_LONG_DOUBLE_INT, MPI_C_BOOL,    MPI_COMPLEX32, MPI_WCHAR};

Modelled random_basic(Random& random) {
  const MPI_Datatype handle = kBasics[static_cast<std::size_t>(between(random, 0, std::size(kBasics) - 1))];
  return {handle, map_of_basic(*type_of(handle))};
}

Modelled random_type(Random& random, int depth);

Modelled random_vector(Random& random, const Modelled& old, bool bytes) {
  const MPI_Count count = between(random, 0, 4);
  const MPI_Count length = between(random, 0, 3);
  const MPI_Count stride = bytes ? between(random, -80, 80) : between(random, -5, 5);
  Modelled made;
  if (bytes)
    EXPECT_EQ(
        MPI_Type_create_hvector(static_cast<int>(count), static_cast<int>(length), stride, old.handle, &made.handle),
        0);
  else
    EXPECT_EQ(MPI_Type_vector_c(count, length, stride, old.handle, &made.handle), 0);
  for (MPI_Count i = 0; i < count; ++i)
    add_blocks(&made.map, old.map, length, i * stride * (bytes ? 1 : old.map.extent()));
  return made;
}

Modelled random_indexed(Random& random, const Modelled& old, int form) {
  const int count = static_cast<int>(between(random, 0, 6));
  const bool block = form >= 2;
  const bool bytes = form % 2 == 1;
  const int length = static_cast<int>(between(random, 0, 3));
  std::vector<int> lengths(static_cast<std::size_t>(count), length);
  std::vector<int> narrow;
  std::vector<MPI_Aint> wide;
  Modelled made;
  for (int i = 0; i < count; ++i) {
    if (!block) lengths[static_cast<std::size_t>(i)] = static_cast<int>(between(random, 0, 3));
    wide.push_back(bytes ? between(random, -100, 100) : between(random, -6, 6));
    narrow.push_back(static_cast<int>(wide.back()));
    add_blocks(&made.map, old.map, lengths[static_cast<std::size_t>(i)], wide.back() * (bytes ? 1 : old.map.extent()));
  }
  int code = 0;
  if (form == 0) code = MPI_Type_indexed(count, lengths.data(), narrow.data(), old.handle, &made.handle);
  if (form == 1) code = MPI_Type_create_hindexed(count, lengths.data(), wide.data(), old.handle, &made.handle);
  if (form == 2) code = MPI_Type_create_indexed_block(count, length, narrow.data(), old.handle, &made.handle);
  if (form == 3) code = MPI_Type_create_hindexed_block(count, length, wide.data(), old.handle, &made.handle);
  EXPECT_EQ(code, 0);
  return made;
}

Modelled random_struct(Random& random, int depth) {
  const int count = static_cast<int>(between(random, 0, 4));
  std::vector<int> lengths;
  std::vector<MPI_Aint> displacements;
  std::vector<MPI_Datatype> types;
  Modelled made;
  for (int i = 0; i < count; ++i) {
    Modelled member = random_type(random, depth - 1);
    lengths.push_back(static_cast<int>(between(random, 0, 2)));
    displacements.push_back(between(random, -60, 200));
    types.push_back(member.handle);
    add_blocks(&made.map, member.map, lengths.back(), displacements.back());
  }
  EXPECT_EQ(MPI_Type_create_struct(count, lengths.data(), displacements.data(), types.data(), &made.handle), 0);
  for (MPI_Datatype& type : types)
    if (!type_of(type)->predefined) MPI_Type_free(&type);
  Map& map = made.map;
  if (!map.lb_marker && !map.empty() && map.extent() % map.alignment != 0)
    map.padding = map.alignment - map.extent() % map.alignment;
  return made;
}

Modelled random_subarray(Random& random, const Modelled& old) {
  const int ndims = static_cast<int>(between(random, 1, 3));
  const int order = random() % 2 == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  std::vector<int> sizes;
  std::vector<int> subsizes;
  std::vector<int> starts;
  for (int i = 0; i < ndims; ++i) {
    sizes.push_back(static_cast<int>(between(random, 1, 4)));
    subsizes.push_back(static_cast<int>(between(random, 1, sizes.back())));
    starts.push_back(static_cast<int>(between(random, 0, sizes.back() - subsizes.back())));
  }
  Modelled made;
  EXPECT_EQ(
      MPI_Type_create_subarray(ndims, sizes.data(), subsizes.data(), starts.data(), order, old.handle, &made.handle),
      0);
  made.map = old.map;
  for (int nth = 0; nth < ndims; ++nth) {
    const auto i = static_cast<std::size_t>(order == MPI_ORDER_C ? ndims - 1 - nth : nth);
    const MPI_Count each = made.map.extent();
    Map next;
    add_blocks(&next, made.map, subsizes[i], starts[i] * each);
    next.resize(0, sizes[i] * each);
    made.map = next;
  }
  return made;
}

void free_type(Modelled* type) {
  if (!type_of(type->handle)->predefined) MPI_Type_free(&type->handle);
}

Modelled derived(Random& random, const Modelled& old, int form) {
  Modelled made;
  switch (form) {
    case 0: {
      const MPI_Count count = between(random, 0, 4);
      EXPECT_EQ(MPI_Type_contiguous_c(count, old.handle, &made.handle), 0);
      add_blocks(&made.map, old.map, count, 0);
      return made;
    }
    case 1:
      return random_vector(random, old, false);
    case 2:
      return random_vector(random, old, true);
    case 3:
    case 4:
    case 5:
    case 6:
      return random_indexed(random, old, form - 3);
    case 7: {
      const MPI_Count lb = between(random, -20, 20);
      const MPI_Count extent = between(random, -30, 90);
      EXPECT_EQ(MPI_Type_create_resized(old.handle, lb, extent, &made.handle), 0);
      made.map = old.map;
      made.map.resize(lb, extent);
      return made;
    }
    case 8:
      return random_subarray(random, old);
    default:
      EXPECT_EQ(MPI_Type_dup(old.handle, &made.handle), 0);
      made.map = old.map;
      return made;
  }
}

Modelled random_type(Random& random, int depth) {
  if (depth == 0) return random_basic(random);
  const int form = static_cast<int>(between(random, 0, 12));
  if (form >= 10) return random_struct(random, depth);
  Modelled old = random_type(random, depth - 1);
  Modelled made = derived(random, old, form);
  free_type(&old);
  return made;
}

// ---- data ---------------------------------------------------------------------------------------

// Byte by byte, where the data of `count` elements lies.
std::vector<MPI_Count> places(const Map& map, MPI_Count count) {
  std::vector<MPI_Count> at;
  for (MPI_Count i = 0; i < count; ++i)
    for (const Entry& entry : map.entries) {
      const bool pair = entry.basic->basic == Basic::pair;
      const MPI_Count value = pair ? parts_of_pair(*entry.basic).value->size : entry.basic->size;
      const MPI_Count index = entry.basic->true_extent - (entry.basic->size - value);
      for (MPI_Count byte = 0; byte < entry.basic->size; ++byte)
        at.push_back(i * map.extent() + entry.at + (byte < value ? byte : index + byte - value));
    }
  return at;
}

struct Memory {
  std::vector<unsigned char> bytes;
  MPI_Count zero = 0;  // index of the buffer's address
  [[nodiscard]] unsigned char* buffer() { return bytes.data() + zero; }
};

Memory memory_for(Random& random, const std::vector<MPI_Count>& at) {
  MPI_Count low = 0;
  MPI_Count high = 0;
  for (const MPI_Count place : at) {
    low = std::min(low, place);
    high = std::max(high, place);
  }
  Memory memory;
  memory.zero = 16 - low;
  memory.bytes.resize(static_cast<std::size_t>(high - low + 48));
  for (unsigned char& byte : memory.bytes) byte = static_cast<unsigned char>(random());
  return memory;
}

void check_layout(const Type& type, const Map& map) {
  ASSERT_EQ(type.size, map.size());
  if (map.empty()) {
    ASSERT_EQ(type.extent, 0);
    return;
  }
  ASSERT_EQ(type.lb, map.lb());
  ASSERT_EQ(type.extent, map.extent());
  ASSERT_EQ(type.true_lb, map.low(true));
  ASSERT_EQ(type.true_extent, map.high(true) - map.low(true));
  const bool one =
      std::ranges::all_of(map.entries, [&](const Entry& entry) { return entry.basic == map.entries.front().basic; });
  if (map.entries.empty()) return;
  ASSERT_EQ(type.element, one ? map.entries.front().basic : nullptr);
  if (one) {
    ASSERT_EQ(type.elements, static_cast<MPI_Count>(map.entries.size()));
  }
}

void check_pack(Random& random, const Type& type, const std::vector<MPI_Count>& at, MPI_Count count) {
  const auto total = static_cast<MPI_Count>(at.size());
  Memory memory = memory_for(random, at);
  std::vector<unsigned char> expected;
  for (const MPI_Count place : at) expected.push_back(memory.buffer()[place]);
  std::vector<unsigned char> packed(at.size() + 1);
  pack(memory.buffer(), count, type, packed.data());
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), packed.begin()));
  if (type.contiguous && total != 0) {
    ASSERT_EQ(std::memcmp(begin_of(memory.buffer(), type), expected.data(), expected.size()), 0);
  }
  for (int i = 0; i < 6; ++i) {
    const MPI_Count from = between(random, 0, total);
    const MPI_Count bytes = between(random, 0, total - from);
    std::fill(packed.begin(), packed.end(), std::uint8_t{0xAA});
    pack_part(memory.buffer(), count, type, from, bytes, packed.data());
    ASSERT_TRUE(std::equal(packed.begin(), packed.begin() + bytes, expected.begin() + from));
    ASSERT_EQ(packed[static_cast<std::size_t>(bytes)], 0xAA);
  }
}

void check_unpack(Random& random, const Type& type, const std::vector<MPI_Count>& at, MPI_Count count) {
  const auto total = static_cast<MPI_Count>(at.size());
  std::vector<unsigned char> packed(at.size());
  for (unsigned char& byte : packed) byte = static_cast<unsigned char>(random());
  for (int i = 0; i < 4; ++i) {
    const MPI_Count from = i == 0 ? 0 : between(random, 0, total);
    const MPI_Count bytes = i == 0 ? total : between(random, 0, total - from);
    Memory memory = memory_for(random, at);
    Memory expected = memory;
    for (MPI_Count byte = from; byte < from + bytes; ++byte)
      expected.buffer()[at[static_cast<std::size_t>(byte)]] = packed[static_cast<std::size_t>(byte)];
    unpack_part(packed.data() + from, from, bytes, memory.buffer(), count, type);
    ASSERT_EQ(memory.bytes, expected.bytes);
  }
}

void check_blocks(const Type& type, const std::vector<MPI_Count>& at, MPI_Count count) {
  std::vector<MPI_Count> seen;
  MPI_Count last = std::numeric_limits<MPI_Count>::min();
  each_block(count, type, [&](MPI_Count offset, MPI_Count bytes) {
    EXPECT_NE(offset, last) << "blocks that touch are one";
    EXPECT_GT(bytes, 0);
    for (MPI_Count i = 0; i < bytes; ++i) seen.push_back(offset + i);
    last = offset + bytes;
  });
  ASSERT_EQ(seen, at);
}

// By element: where each basic element of one ends in the packed form.
void check_elements(const Type& type, const Map& map, MPI_Count count) {
  std::vector<MPI_Count> ends{0};
  for (MPI_Count i = 0; i < count; ++i)
    for (const Entry& entry : map.entries) {
      const MPI_Count begin = ends.back();
      if (entry.basic->basic == Basic::pair) ends.push_back(begin + parts_of_pair(*entry.basic).value->size);
      ends.push_back(begin + entry.basic->size);
    }
  for (MPI_Count bytes = 0; bytes <= ends.back(); ++bytes) {
    const auto found = std::ranges::lower_bound(ends, bytes);
    const MPI_Count expected = *found == bytes ? found - ends.begin() : MPI_Count{MPI_UNDEFINED};
    ASSERT_EQ(elements_in(type, bytes), expected) << bytes;
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    MPI_Count bytes = -1;
    ASSERT_EQ(bytes_of_elements(type, static_cast<MPI_Count>(i), &bytes), MPI_SUCCESS);
    ASSERT_EQ(bytes, ends[i]);
  }
}

TEST(Types, RandomTypesAreAsTheirMaps) {
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Modelled made = random_type(random, 1 + static_cast<int>(seed % 4));
    const Type& type = *type_of(made.handle);
    ASSERT_NO_FATAL_FAILURE(check_layout(type, made.map));
    const MPI_Count count = between(random, 0, 4);
    const std::vector<MPI_Count> at = places(made.map, count);
    ASSERT_NO_FATAL_FAILURE(check_pack(random, type, at, count));
    ASSERT_NO_FATAL_FAILURE(check_unpack(random, type, at, count));
    ASSERT_NO_FATAL_FAILURE(check_blocks(type, at, count));
    ASSERT_NO_FATAL_FAILURE(check_elements(type, made.map, count));
    free_type(&made);
  }
}

TEST(Types, CopyGoesThroughThePackedForm) {
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Modelled from = random_type(random, 3);
    Modelled to = seed % 4 == 0 ? derived(random, from, 9) : random_type(random, 3);
    const MPI_Count from_count = between(random, 0, 40);
    const MPI_Count to_count = between(random, 0, 40);
    const std::vector<MPI_Count> from_at = places(from.map, from_count);
    const std::vector<MPI_Count> to_at = places(to.map, to_count);
    Memory source = memory_for(random, from_at);
    Memory target = memory_for(random, to_at);
    Memory expected = target;
    for (std::size_t i = 0; i < std::min(from_at.size(), to_at.size()); ++i)
      expected.buffer()[to_at[i]] = source.buffer()[from_at[i]];
    copy(source.buffer(), from_count, *type_of(from.handle), target.buffer(), to_count, *type_of(to.handle));
    ASSERT_EQ(target.bytes, expected.bytes);
    free_type(&from);
    free_type(&to);
  }
}

}  // namespace
}  // namespace heddle::mpi::types_test
