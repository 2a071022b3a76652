#include "openshmem/state.hpp"

#include "openshmem/checks.hpp"
#include "openshmem/memory/segments.hpp"
#include "openshmem/patience.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace heddle::shmem {

State g_state;

RemotePlace locate(Call call, const char* argument, const void* address, std::size_t bytes) {
  for (const SymmetricSegment* segment : {&g_state.heap, &g_state.statics}) {
    if (segment->present() && segment->holds(address, bytes)) {
      if (checks_everything()) check_live(call, argument, address, bytes);
      return {segment, reinterpret_cast<std::uintptr_t>(address) - segment->base};
    }
  }
  for (const SymmetricSegment* segment : {&g_state.heap, &g_state.statics}) {
    if (segment->present() && segment->holds(address, 1)) {
      fail(call, "%s %p with %zu bytes leaves the %s, which is %p-%p", argument, address, bytes, segment->name,
           reinterpret_cast<void*>(segment->base),  // NOLINT(performance-no-int-to-ptr): to be printed
           reinterpret_cast<void*>(segment->base + segment->bytes));  // NOLINT(performance-no-int-to-ptr)
    }
  }
  fail(call,
       "%s %p is not symmetric: it is neither in the symmetric heap (shmem_malloc) nor in writable static data of the "
       "executable",
       argument, address);
}

heddle_remote RemotePlace::on(int world) const {
  static_cast<void>(memory::meet(*segment, world));
  return {segment->remotes[world], segment->skews[world] + offset};
}

std::byte* mapped(const void* address, int world) {
  for (const SymmetricSegment* segment : {&g_state.heap, &g_state.statics}) {
    if (!segment->present() || !segment->holds(address, 1)) continue;
    static_cast<void>(memory::meet(*segment, world));
    std::byte* base = SymmetricSegment::of(segment->mapped, world);
    // This PE's own memory is here, even where the transport maps no memory of peers.
    if (base == nullptr && world == g_state.my_pe) {
      base = reinterpret_cast<std::byte*>(segment->base);  // NOLINT(performance-no-int-to-ptr)
    }
    return base == nullptr ? nullptr : base + (reinterpret_cast<std::uintptr_t>(address) - segment->base);
  }
  return nullptr;
}

int checked_pe(Call call, const ShmemContext& context, int pe) {
  check_initialized(call);
  if (context.members.size == 0) {
    fail(call, "ctx %s", &context == &g_state.contexts[0] ? "is SHMEM_CTX_INVALID" : "is of a destroyed context");
  }
  const int world = world_pe(context, pe);
  if (world < 0) fail(call, "pe %d: the PEs of the context are 0-%d", pe, context.members.size - 1);
  return world;
}

void check_initialized(Call call) {
  if (g_state.n_pes != 0) return;
  fail(call, g_state.finalized ? "called after shmem_finalize" : "called before shmem_init or shmem_init_thread");
}

void fail(Call call, const char* format, ...) {
  char text[512];
  const int head = std::snprintf(text, sizeof text, "%s: ", call);
  const auto used = static_cast<std::size_t>(head < 0 ? 0 : head);
  std::va_list arguments;
  va_start(arguments, format);
  if (used < sizeof text) std::vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  if (g_state.n_pes > 1) heddle_context_abort(g_state.job, 1, text);
  std::fprintf(stderr, "%s\n", text);
  std::_Exit(1);
}

std::string in_words_of_shmem(std::string text) {
  for (std::size_t at = text.find("rank"); at != std::string::npos; at = text.find("rank", at + 2)) {
    text.replace(at, 4, "PE");
  }
  return text;
}

void fail_status(Call call, heddle_status status) {
  if (status == HEDDLE_ERR_PEER_FAILED) fail_by_death(call, -1);
  fail(call, "%s: %s", heddle_status_name(status), in_words_of_shmem(heddle_last_error()).c_str());
}

}  // namespace heddle::shmem
