#include "openshmem/memory/segments.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "openshmem/checks.hpp"
#include "openshmem/memory/statics.hpp"

namespace heddle::shmem::memory {
namespace {

// A segment's data that operations do not need.
struct Backing {
  heddle_region region{};
  std::vector<heddle_remote_region> remotes;
  std::vector<std::byte*> mapped;
  std::vector<std::byte*> none;  // nulls, one per PE: what operations find under HEDDLE_CHECK=full
  std::vector<std::size_t> skews;
};
Backing g_heap;
Backing g_statics;

// What must be equal on all PEs.
struct Agreement {
  std::uint64_t heap_bytes;
  std::uint64_t static_bytes;
  std::uint64_t static_identity;
};

// Collective: exchanges the region, in which the segment begins at `skew`, and fills in `segment`.
void share(Call call, Backing& backing, Segment& segment, std::size_t skew, void* base, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  backing.remotes.resize(n);
  backing.mapped.assign(n, nullptr);
  backing.none.assign(n, nullptr);
  backing.skews.resize(n);
  must(call, heddle_context_exchange(g_state.job, &skew, sizeof skew, backing.skews.data()));
  must(call, heddle_region_exchange(g_state.job, backing.region, backing.remotes.data()));
  for (std::size_t pe = 0; pe < n; ++pe) {
    void* address = nullptr;
    if (heddle_remote_pointer({backing.remotes[pe], backing.skews[pe]}, &address) == HEDDLE_DONE) {
      backing.mapped[pe] = static_cast<std::byte*>(address);
    }
  }
  segment.base = reinterpret_cast<std::uintptr_t>(base);
  segment.bytes = bytes;
  segment.mapped = backing.mapped.data();
  segment.direct = checks_everything() ? backing.none.data() : backing.mapped.data();
  segment.remotes = backing.remotes.data();
  segment.skews = backing.skews.data();
}

void open_heap(Call call, std::size_t bytes) {
  must(call, heddle_region_alloc(g_state.job, bytes + kHeapAlignment, &g_heap.region));
  void* address = nullptr;
  must(call, heddle_region_address(g_heap.region, &address, nullptr));
  const std::size_t skew = -reinterpret_cast<std::uintptr_t>(address) & (kHeapAlignment - 1);
  share(call, g_heap, g_state.heap, skew, static_cast<std::byte*>(address) + skew, bytes);
}

// A region for the executable's data: mapped over it where possible, else registered.
void open_statics(Call call, const StaticData& data) {
  heddle_region region{};
  void* pages = nullptr;
  if (heddle_region_alloc(g_state.job, data.bytes, &region) == HEDDLE_DONE) {
    must(call, heddle_region_address(region, &pages, nullptr));
    if (!move_to(static_cast<std::byte*>(pages), data)) {
      must(call, heddle_region_release(region));
      pages = nullptr;
    }
  }
  if (pages == nullptr) must(call, heddle_region_register(g_state.job, data.begin, data.bytes, &region));
  g_statics.region = region;
  share(call, g_statics, g_state.statics, 0, data.begin, data.bytes);
}

void close_one(Call call, Backing& backing, Segment& segment) {
  if (backing.region.id == 0) return;
  for (const heddle_remote_region& remote : backing.remotes) must(call, heddle_remote_region_release(remote));
  must(call, heddle_region_release(backing.region));
  backing = {};
  segment = Segment{.name = segment.name};
}

}  // namespace

void open_segments(Call call, std::size_t heap_bytes) {
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  const StaticData data = find_static_data();
  const Agreement mine{heap_bytes, data.bytes, data.identity};
  std::vector<Agreement> all(n);
  must(call, heddle_context_exchange(g_state.job, &mine, sizeof mine, all.data()));
  bool same_executable = data.bytes > 0;
  for (std::size_t pe = 0; pe < n; ++pe) {
    if (all[pe].heap_bytes != heap_bytes) {
      fail(call, "SHMEM_SYMMETRIC_SIZE makes a heap of %zu bytes here and of %zu bytes on PE %zu: set it alike",
           heap_bytes, static_cast<std::size_t>(all[pe].heap_bytes), pe);
    }
    same_executable &= all[pe].static_bytes == mine.static_bytes && all[pe].static_identity == mine.static_identity;
  }
  open_heap(call, heap_bytes);
  if (same_executable) {
    open_statics(call, data);
  } else {
    g_statics.none.assign(n, nullptr);  // static data of different programs is not symmetric
    g_state.statics.direct = g_state.statics.mapped = g_statics.none.data();
  }
}

void close_segments(Call call) {
  move_back();
  close_one(call, g_statics, g_state.statics);
  close_one(call, g_heap, g_state.heap);
}

}  // namespace heddle::shmem::memory
