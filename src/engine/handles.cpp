#include "engine/handles.hpp"

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "base/cache_line.hpp"
#include "engine/objects.hpp"
#include "queue/locks.hpp"

namespace heddle::engine {

// In .bss: pages come into being when touched. Aligned to pages, so that wiping it touches nothing
// else, and is not rejected.
static_assert(sizeof(HandleEntry) * kHandleEntries % base::kLargestPage == 0);
alignas(base::kLargestPage) constinit HandleEntry g_handles[kHandleEntries]{};

namespace {

struct Section {
  std::vector<std::uint64_t> free;
  std::uint64_t next = 1;  // entry 0 stays free: the null handle is never live
};

// Allocation of entries; cold. It survives a fork, and the generations go on, so that a child's new
// handles differ from all handles that it inherited.
struct Allocator {
  queue::FetchingMutex mutex;  // helpers open and close regions too
  std::array<Section, static_cast<std::size_t>(kLastHandleType) + 1> sections;
  std::uint64_t generation = 0;
  bool wiped_on_fork = false;
};

// Never destroyed: programs close handles in exit handlers, too.
Allocator& allocator() {
  static Allocator& instance = *new Allocator;
  return instance;
}

std::uint64_t index_of(std::uint64_t id, HandleType type) {
  return id / sizeof(HandleEntry) & (handle_entries(type) - 1);
}

}  // namespace

std::uint64_t open_handle(HandleType type, void* object) {
  Allocator& all = allocator();
  const std::lock_guard lock(all.mutex);
  if (!all.wiped_on_fork) {
    all.wiped_on_fork = madvise(g_handles, sizeof g_handles, MADV_WIPEONFORK) == 0;
  }
  Section& section = all.sections[static_cast<std::size_t>(type)];
  std::uint64_t index = 0;
  // Makes sure that closing never allocates.
  if (section.free.capacity() < section.next) section.free.reserve(2 * section.next + 64);
  if (!section.free.empty()) {
    index = section.free.back();
    section.free.pop_back();
  } else if (section.next < handle_entries(type)) {
    index = section.next++;
  } else {
    return 0;
  }
  constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << (kHandleTypeShift - kHandleGenerationShift)) - 1;
  const std::uint64_t generation = ++all.generation & kGenerationMask;
  const std::uint64_t id = static_cast<std::uint64_t>(type) << kHandleTypeShift | generation << kHandleGenerationShift |
                           index * sizeof(HandleEntry);
  HandleEntry& entry = g_handles[handle_section(type) + index];
  entry.object = object;
  std::atomic_ref(entry.id).store(id, std::memory_order_release);
  return id;
}

void close_handle(std::uint64_t id) {
  if (id == 0) return;
  Allocator& all = allocator();
  const std::lock_guard lock(all.mutex);
  const auto type = static_cast<HandleType>(id >> kHandleTypeShift);
  const std::uint64_t index = index_of(id, type);
  HandleEntry& entry = g_handles[handle_section(type) + index];
  if (std::atomic_ref(entry.id).load(std::memory_order_relaxed) != id) return;
  std::atomic_ref(entry.id).store(0, std::memory_order_release);
  all.sections[static_cast<std::size_t>(type)].free.push_back(index);
}

namespace {

using tap::DebugField;
using tap::DebugType;

constexpr std::size_t kTypes = static_cast<std::size_t>(kLastHandleType) + 1;

constexpr std::array<DebugField, 3> kRegion{
    {{"address", offsetof(Region, memory) + offsetof(transport::LocalMemory, address), sizeof(void*)},
     {"bytes", offsetof(Region, memory) + offsetof(transport::LocalMemory, bytes), sizeof(std::uint64_t)},
     {"allocated", offsetof(Region, allocated), sizeof(bool)}}};
constexpr std::array<DebugField, 5> kRemote{{{"rank", offsetof(RemoteRegion, rank), sizeof(std::uint32_t)},
                                             {"bytes", offsetof(RemoteRegion, bytes), sizeof(std::uint64_t)},
                                             {"direct", offsetof(RemoteRegion, direct), sizeof(void*)},
                                             {"barred", offsetof(RemoteRegion, barred), sizeof(std::uint8_t)},
                                             {"closed", offsetof(RemoteRegion, closed), sizeof(bool)}}};

constexpr DebugType section(HandleType type, const char* name, std::span<const DebugField> fields = {}) {
  return {name, handle_section(type), handle_entries(type), fields.data(), fields.size()};
}
// By number; contexts and workers stand in lists of their own. Guarded by g_mutex, but for readers
// that have stopped the process.
constinit std::array<DebugType, kTypes> g_types{{{"none", 0, 0, nullptr, 0},
                                                 section(HandleType::context, "context"),
                                                 section(HandleType::worker, "worker"),
                                                 section(HandleType::region, "region", kRegion),
                                                 section(HandleType::remote_region, "remote region", kRemote),
                                                 section(HandleType::counter, "counter"),
                                                 section(HandleType::inproc_job, "inproc job"),
                                                 section(HandleType::team, "team"),
                                                 section(HandleType::collective, "collective operation"),
                                                 section(HandleType::partitioned, "partitioned operation")}};
constinit queue::FetchingMutex g_mutex;

}  // namespace

}  // namespace heddle::engine

// A debugger finds it by its name in the table of dynamic symbols, which stripped libraries have,
// too.
// NOLINTBEGIN(readability-identifier-naming): the name is the script's
extern "C" {
[[gnu::visibility("default")]] constinit heddle::tap::DebugDirectory heddle_debug_directory{
    {"heddle-debug"},
    heddle::tap::kDebugVersion,
    sizeof(heddle::tap::DebugDirectory),
    heddle::engine::g_handles,
    heddle::engine::g_types.size(),
    heddle::engine::g_types.data(),
    nullptr};
}
// NOLINTEND(readability-identifier-naming)

namespace heddle::engine {

void show_context(tap::DebugContext& context) {
  const std::lock_guard lock(g_mutex);
  context.next = heddle_debug_directory.contexts;
  heddle_debug_directory.contexts = &context;
}

void hide_context(tap::DebugContext& context) {
  const std::lock_guard lock(g_mutex);
  for (tap::DebugContext** link = &heddle_debug_directory.contexts; *link != nullptr; link = &(*link)->next) {
    if (*link != &context) continue;
    *link = context.next;
    return;
  }
}

void show_type(HandleType type, std::span<const DebugField> fields) {
  const std::lock_guard lock(g_mutex);
  DebugType& row = g_types[static_cast<std::size_t>(type)];
  row.fields = fields.data();
  row.field_count = fields.size();
}

}  // namespace heddle::engine
