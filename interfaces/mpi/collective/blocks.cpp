#include "mpi/collective/blocks.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "mpi/core/check.hpp"

namespace heddle::mpi {
namespace {

std::byte* start_of(const BufferBlock& block) {
  return static_cast<std::byte*>(begin_of(block.buffer, *block.type));
}

BufferBlock shifted(const BufferBlock& block, MPI_Count bytes) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(block.buffer) + static_cast<std::uintptr_t>(bytes);
  return {pointer_from(address), block.count, block.type};
}

// The base address of blocks that are used in place.
std::byte* lowest(const Blocks& blocks) {
  std::byte* low = nullptr;
  for (int i = 0; i < blocks.size(); ++i) {
    const BufferBlock block = blocks[i];
    if (block.bytes() > 0 && (low == nullptr || start_of(block) < low)) low = start_of(block);
  }
  return low;
}

void place_list(const Blocks& blocks, Wire* wire) {
  std::size_t packed = 0;
  for (int i = 0; i < blocks.size(); ++i) {
    const BufferBlock block = blocks[i];
    const std::size_t bytes = block.bytes();
    std::size_t offset = 0;
    if (wire->packed)
      offset = blocks.is_same() ? 0 : packed;
    else if (bytes > 0)
      offset = static_cast<std::size_t>(start_of(block) - wire->base);
    wire->places.lengths.push_back(bytes);
    wire->places.offsets.push_back(offset);
    packed += bytes;
  }
}

std::size_t total_of(const Blocks& blocks) {
  if (blocks.size() == 0) return 0;
  if (blocks.is_same()) return blocks[0].bytes();
  if (blocks.is_even()) return blocks[0].bytes() * static_cast<std::size_t>(blocks.size());
  std::size_t bytes = 0;
  for (int i = 0; i < blocks.size(); ++i) bytes += blocks[i].bytes();
  return bytes;
}

// The data of an even side is one block with the elements of all blocks.
BufferBlock whole_of(const Blocks& blocks) {
  BufferBlock whole = blocks[0];
  whole.count *= blocks.size();
  return whole;
}

}  // namespace

Blocks Blocks::even(const BufferBlock& first, int size) {
  Blocks blocks;
  blocks.kind_ = Kind::even;
  blocks.first_ = first;
  blocks.size_ = size;
  return blocks;
}

Blocks Blocks::same(const BufferBlock& block, int size) {
  Blocks blocks = even(block, size);
  blocks.kind_ = Kind::same;
  return blocks;
}

void Blocks::add(const BufferBlock& block) {
  list_.push_back(block);
  ++size_;
}

BufferBlock Blocks::operator[](int i) const {
  if (kind_ == Kind::list) return list_[static_cast<std::size_t>(i)];
  return kind_ == Kind::same ? first_ : shifted(first_, i * first_.count * first_.type->extent);
}

bool Blocks::contiguous() const {
  if (kind_ != Kind::list) return first_.type->contiguous;
  return std::ranges::all_of(list_,
                             [](const BufferBlock& block) { return block.type->contiguous || block.bytes() == 0; });
}

std::byte* Wire::at(int i) const {
  const auto index = static_cast<std::size_t>(i);
  return base + (places.offsets.empty() ? index * stride : places.offsets[index]);
}

Wire wire_of(StepSchedule& schedule, const Blocks& blocks, bool apart) {
  Wire wire;
  wire.packed = apart || !blocks.contiguous();
  if (blocks.is_even()) {
    wire.stride = blocks[0].bytes();
    wire.base = wire.packed ? schedule.room(total_of(blocks)) : start_of(blocks[0]);
    return wire;
  }
  wire.base = wire.packed ? schedule.room(total_of(blocks)) : lowest(blocks);
  place_list(blocks, &wire);
  return wire;
}

namespace {

// A block in the program's memory, or several side by side.
constexpr int kAllBlocks = -1;
struct Extent {
  const std::byte* begin;
  const std::byte* end;
  int block;
  bool received;
};

std::string name_of(const Extent& extent) {
  const std::string buffer = extent.received ? "recvbuf" : "sendbuf";
  return extent.block == kAllBlocks ? buffer : "block " + std::to_string(extent.block) + " of " + buffer;
}

// The first ones of this process, since a loop would repeat it for ever.
void tell_overlap(const char* caller, const Extent& one, const Extent& other) {
  constexpr int kMost = 10;
  static std::atomic<int> told{0};  // relaxed: a count
  const int now = told.fetch_add(1, std::memory_order_relaxed);
  if (now >= kMost) return;
  std::fprintf(stderr,
               "heddle: rank %u: %s: %s and %s overlap: the standard forbids it, and what is there afterwards depends "
               "on the order%s\n",
               g_job.rank, caller == nullptr ? "a collective" : caller, name_of(one).c_str(), name_of(other).c_str(),
               now + 1 == kMost ? "; further overlaps are not told" : "");
}

void add_extents(const Blocks& blocks, bool received, std::vector<Extent>* extents) {
  const auto add = [&](const BufferBlock& block, int number) {
    const std::byte* const begin = block.bytes() == 0 ? nullptr : start_of(block);
    if (begin != nullptr) extents->push_back({begin, begin + block.bytes(), number, received});
  };
  if (blocks.size() == 0) return;
  if (blocks.is_even()) return add(whole_of(blocks), kAllBlocks);
  if (blocks.is_same()) return add(blocks[0], 0);
  for (int i = 0; i < blocks.size(); ++i) add(blocks[i], i);
}

// Finds two blocks that overlap, at least one of them received. False: there are none.
bool find_overlap(const Blocks& receive, const Blocks* send, Extent* one, Extent* other) {
  std::vector<Extent> extents;
  add_extents(receive, true, &extents);
  if (send != nullptr && send->contiguous()) add_extents(*send, false, &extents);
  if (!std::ranges::is_sorted(extents, {}, &Extent::begin)) std::ranges::sort(extents, {}, &Extent::begin);
  // For each kind, the earlier extent that ends last.
  const Extent* received = nullptr;
  const Extent* sent = nullptr;
  for (const Extent& extent : extents) {
    for (const Extent* before : {received, extent.received ? sent : nullptr}) {
      if (before == nullptr || before->end <= extent.begin) continue;
      *one = *before;
      *other = extent;
      return true;
    }
    const Extent*& last = extent.received ? received : sent;
    if (last == nullptr || last->end < extent.end) last = &extent;
  }
  return false;
}

}  // namespace

Wire wire_of_received(StepSchedule& schedule, const Blocks& receive, const Blocks* send) {
  if (!receive.contiguous()) return wire_of(schedule, receive);
  Extent one{};
  Extent other{};
  if (!find_overlap(receive, send, &one, &other)) return wire_of(schedule, receive);
  if (g_checks) tell_overlap(schedule.caller, one, other);
  return wire_of(schedule, receive, true);
}

void add_pack(StepSchedule& schedule, const Blocks& blocks, const Wire& wire) {
  if (!wire.packed || blocks.size() == 0) return;
  if (blocks.is_even()) return add_pack(schedule, whole_of(blocks), wire.base);
  if (blocks.is_same()) return add_pack(schedule, blocks[0], wire.base);
  schedule.local([blocks, wire] {
    for (int i = 0; i < blocks.size(); ++i)
      if (const BufferBlock block = blocks[i]; block.bytes() > 0)
        pack(block.buffer, block.count, *block.type, wire.at(i));
  });
}

void add_unpack(StepSchedule& schedule, const Blocks& blocks, const Wire& wire) {
  if (!wire.packed || blocks.size() == 0) return;
  if (blocks.is_even()) return add_unpack(schedule, whole_of(blocks), wire.base);
  schedule.local([blocks, wire] {
    for (int i = 0; i < blocks.size(); ++i) {
      const BufferBlock block = blocks[i];
      const auto bytes = static_cast<MPI_Count>(block.bytes());
      if (bytes > 0) unpack(wire.at(i), bytes, block.buffer, block.count, *block.type);
    }
  });
}

void add_pack(StepSchedule& schedule, const BufferBlock& block, std::byte* to) {
  if (block.bytes() == 0) return;
  schedule.local([block, to] { pack(block.buffer, block.count, *block.type, to); });
}

void add_unpack(StepSchedule& schedule, const BufferBlock& block, const std::byte* from) {
  if (block.bytes() == 0) return;
  schedule.local(
      [block, from] { unpack(from, static_cast<MPI_Count>(block.bytes()), block.buffer, block.count, *block.type); });
}

void add_copy(StepSchedule& schedule, const BufferBlock& from, const BufferBlock& to) {
  if (from.bytes() == 0 || to.bytes() == 0) return;
  schedule.local([from, to] { copy(from.buffer, from.count, *from.type, to.buffer, to.count, *to.type); });
}

// ---- checks -------------------------------------------------------------------------------------

int check_not_in_place(const SideNames& names, const void* buffer) {
  if (buffer != MPI_IN_PLACE) return MPI_SUCCESS;
  return error(MPI_ERR_BUFFER, "%s is MPI_IN_PLACE: not allowed here; pass memory", names.buffer);
}

int read_block(StepSchedule& schedule, const SideNames& names, const BlockArguments& given, BufferBlock* block) {
  if (given.count < 0)
    return error(MPI_ERR_COUNT, "%s %lld: it must not be negative", names.count, static_cast<long long>(given.count));
  Type* type = nullptr;
  if (const int code = committed_type(given.type, names.type, &type); code != MPI_SUCCESS) return code;
  if (const int code = check_not_in_place(names, given.buffer); code != MPI_SUCCESS) return code;
  const MPI_Count largest = std::max({type->size, type->extent, -type->extent});
  if (largest > 0 && given.count > kMostBytes / largest)
    return error(MPI_ERR_COUNT, "%s %lld: elements of %lld bytes; at most 2^48 bytes are moved at once", names.count,
                 static_cast<long long>(given.count), static_cast<long long>(largest));
  *block = {const_cast<void*>(given.buffer), given.count, type};
  if (block->bytes() > 0 && start_of(*block) == nullptr)
    return error(MPI_ERR_BUFFER, "%s is null, and %s is %lld; pass memory", names.buffer, names.count,
                 static_cast<long long>(given.count));
  if (schedule.described.bytes == Described::kUnknown) {
    schedule.described.bytes = block->bytes();
    schedule.described.kind = block->bytes() == 0 ? 0 : kind_of(*type);
  }
  schedule.hold(type);
  return MPI_SUCCESS;
}

namespace {

int check_lists(const SideNames& names, const CountList& counts, const CountList& displacements, int size) {
  if (size == 0) return MPI_SUCCESS;
  if (!counts.present()) return error(MPI_ERR_ARG, "the list of %ss is null; pass %d numbers", names.count, size);
  if (!displacements.present())
    return error(MPI_ERR_ARG, "the displacements of %s are null; pass %d numbers", names.buffer, size);
  return MPI_SUCCESS;
}

}  // namespace

int read_blocks(StepSchedule& schedule, const SideNames& names, const Listed& listed, int size, Blocks* blocks) {
  if (const int code = check_lists(names, listed.counts, listed.displacements, size); code != MPI_SUCCESS) return code;
  BufferBlock first;
  if (const int code = read_block(schedule, names, {listed.buffer, 0, listed.datatype}, &first); code != MPI_SUCCESS)
    return code;
  for (int i = 0; i < size; ++i) {
    BufferBlock block = shifted(first, listed.displacements[i] * first.type->extent);
    block.count = listed.counts[i];
    if (block.count < 0)
      return error(MPI_ERR_COUNT, "%s %lld at %d: it must not be negative", names.count,
                   static_cast<long long>(block.count), i);
    if (block.bytes() > 0 && listed.buffer == nullptr && start_of(first) == nullptr)
      return error(MPI_ERR_BUFFER, "%s is null, and %s at %d is %lld; pass memory", names.buffer, names.count, i,
                   static_cast<long long>(block.count));
    blocks->add(block);
  }
  return MPI_SUCCESS;
}

int read_blocks(StepSchedule& schedule, const SideNames& names, const ListedTypes& listed, int size, Blocks* blocks) {
  if (const int code = check_lists(names, listed.counts, listed.displacements, size); code != MPI_SUCCESS) return code;
  if (size > 0 && listed.datatypes == nullptr)
    return error(MPI_ERR_ARG, "the list of %ss is null; pass %d types", names.type, size);
  for (int i = 0; i < size; ++i) {
    BufferBlock block;
    if (const int code = check_not_in_place(names, listed.buffer); code != MPI_SUCCESS) return code;
    const BufferBlock at = shifted({const_cast<void*>(listed.buffer), 0, nullptr}, listed.displacements[i]);
    if (const int code = read_block(schedule, names, {at.buffer, listed.counts[i], listed.datatypes[i]}, &block);
        code != MPI_SUCCESS)
      return code;
    blocks->add(block);
  }
  return MPI_SUCCESS;
}

int check_root(StepSchedule& schedule, int root) {
  const Comm& comm = schedule.communicator();
  schedule.described.root = root;
  if (comm.inter() && (root == MPI_ROOT || root == MPI_PROC_NULL)) return MPI_SUCCESS;
  const int size = comm.inter() ? comm.remote_size() : comm.size();
  if (root >= 0 && root < size) return MPI_SUCCESS;
  return error(MPI_ERR_ROOT, "root %d: the %s has ranks 0-%d%s", root, comm.inter() ? "remote group" : "communicator",
               size - 1, comm.inter() ? "; MPI_ROOT and MPI_PROC_NULL in the root's own group" : "");
}

int check_apart(const BufferBlock& from, const BufferBlock& to) {
  if (from.bytes() == 0 || to.bytes() == 0 || start_of(from) != start_of(to)) return MPI_SUCCESS;
  return error(MPI_ERR_BUFFER, "the buffers are the same memory; pass two, or MPI_IN_PLACE where the call allows it");
}

}  // namespace heddle::mpi
