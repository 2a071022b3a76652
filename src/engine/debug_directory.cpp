#include "engine/debug_directory.hpp"

#include <array>
#include <cstddef>
#include <mutex>

#include "engine/region.hpp"
#include "queue/locks.hpp"

namespace heddle::engine {
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
