#include "openshmem/setup.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/groups.hpp"
#include "openshmem/heap.hpp"
#include "openshmem/locks.hpp"
#include "openshmem/memory/segments.hpp"
#include "openshmem/patience.hpp"
#include "openshmem/teams.hpp"

namespace heddle::shmem {

namespace {

int g_initialized = 0;    // calls of init minus calls of finalize
bool g_implicit = false;  // initialised by start_pes: by the standard, exit finalizes
pid_t g_process = 0;      // that registered finalize_at_exit: a child of fork is not a PE

void join(Call call) {
  heddle_context_options options{};
  options.size = sizeof options;
  // Progress threads answer peers' messages while this PE computes, unless the user chose
  // otherwise. Direct operations do not pay for it.
  if (std::getenv("HEDDLE_PROGRESS") == nullptr) options.progress = "adaptive";
  must(call, heddle_context_join(&options, &g_state.job));
  tell_calls(g_state.job);
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  must(call, heddle_context_list_held(g_state.job, &list_held_locks));
  must(call, heddle_context_rank(g_state.job, &rank));
  must(call, heddle_context_size(g_state.job, &size));
  g_state.my_pe = static_cast<int>(rank);
  g_state.n_pes = static_cast<int>(size);  // from here on errors end the whole job
}

// The variables of the standard that only print information.
void print_what_was_asked_for() {
  if (std::getenv("SHMEM_VERSION") != nullptr) {
    std::fprintf(stderr, "OpenSHMEM %d.%d, %s %d.%d.%d\n", SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION,
                 SHMEM_VENDOR_STRING, HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  }
  if (std::getenv("SHMEM_INFO") != nullptr) {
    std::fprintf(stderr,
                 "SHMEM_SYMMETRIC_SIZE  bytes of each PE's symmetric heap, such as 100000, 1.5G or 64M; now %zu\n"
                 "SHMEM_DEATHS          waits for words after the death of a PE: end (with the job) or ignore (go on)\n"
                 "HEDDLE_CHECK          mistakes that are looked for: off, on or full\n"
                 "SHMEM_VERSION         print the version\n"
                 "SHMEM_INFO            print this\n"
                 "HEDDLE_...            of the engine: `heddle info settings` prints them\n",
                 g_state.heap.bytes - kReservedBytes);
  }
}

// Many programs end without shmem_finalize, and other libraries finalize for them. An exit with an
// error is left to the launcher: peers may be anywhere, and a barrier with them could hang or match
// another barrier of theirs.
void finalize_at_exit(int exit_code, void* /*unused*/) {
  if (g_initialized == 0 || exit_code != 0 || ::getpid() != g_process) return;
  // on each PE: perhaps only this one forgot, and the others are in another collective
  if (!g_implicit) {
    std::fprintf(stderr, "shmem_finalize: not called before the end of PE %d; it is done now\n", g_state.my_pe);
  }
  g_initialized = 1;
  finalize("shmem_finalize");
}

}  // namespace

int init_thread(Call call, int requested, int* provided) {
  if (requested < SHMEM_THREAD_SINGLE || requested > SHMEM_THREAD_MULTIPLE) {
    fail(call, "requested %d is none of SHMEM_THREAD_SINGLE, FUNNELED, SERIALIZED, MULTIPLE", requested);
  }
  if (g_state.finalized) {
    fail(call,
         "called after the last shmem_finalize: the library begins once in a process (OpenSHMEM 1.5 leaves a second "
         "init undefined)");
  }
  if (g_initialized++ == 0) {
    g_state.thread_level = requested;
    g_state.check = wanted_checks(call);
    read_deaths(call);
    const std::size_t heap_bytes = heap_bytes_wanted(call);
    join(call);
    open_default_context(call);
    memory::open_segments(call, heap_bytes);
    open_heap_books();
    open_teams(call);
    if (g_state.my_pe == 0) print_what_was_asked_for();
    // No PE may begin an operation before its peers have their workers and their heaps.
    must(call, heddle_context_barrier(g_state.job, default_context().worker, HEDDLE_FOREVER));
    g_process = ::getpid();
    if (::on_exit(finalize_at_exit, nullptr) != 0) fail(call, "no memory for an exit handler");
  }
  if (provided != nullptr) *provided = g_state.thread_level;
  return 0;
}

void init(Call call) {
  init_thread(call, SHMEM_THREAD_SINGLE, nullptr);
}

void start_pes(Call call, int /*npes*/) {
  if (g_initialized > 0) return;
  init_thread(call, SHMEM_THREAD_SINGLE, nullptr);
  g_implicit = true;
}

void finalize(Call call) {
  check_initialized(call);
  barrier_all(call);
  if (--g_initialized > 0) return;
  close_contexts(call);
  // All operations are complete and no PE begins another.
  must(call, heddle_context_barrier(g_state.job, default_context().worker, HEDDLE_FOREVER));
  close_teams();
  close_heap_books();
  memory::close_segments(call);
  g_state.n_pes = 0;
  g_state.finalized = true;
  tell_calls({});
  must(call, heddle_context_leave(g_state.job));
}

void global_exit(Call call, int status) {
  check_initialized(call);
  std::fflush(nullptr);
  const int code = status & 0xff;  // as exit() does
  heddle_context_abort(g_state.job, code, code == 0 ? nullptr : call);
  std::_Exit(code);
}

void query_thread(Call call, int* provided) {
  check_initialized(call);
  if (provided == nullptr) fail(call, "provided is null");
  *provided = g_state.thread_level;
}

void query_initialized(Call call, int* initialized) {
  if (initialized == nullptr) fail(call, "initialized is null");
  *initialized = g_state.n_pes != 0 ? 1 : 0;
}

int my_pe(Call call) {
  check_initialized(call);
  return g_state.my_pe;
}
int n_pes(Call call) {
  check_initialized(call);
  return g_state.n_pes;
}

int pe_accessible(Call call, int pe) {
  check_initialized(call);
  return world_pe(World{}, pe) >= 0 ? 1 : 0;
}

int addr_accessible(Call call, const void* addr, int pe) {
  check_initialized(call);
  if (world_pe(World{}, pe) < 0) return 0;
  for (const SymmetricSegment* segment : {&g_state.heap, &g_state.statics}) {
    if (segment->present() && segment->holds(addr, 1)) return 1;
  }
  return 0;
}

void* ptr(Call call, const void* dest, int pe) {
  check_initialized(call);
  const int world = world_pe(World{}, pe);
  return world < 0 ? nullptr : mapped(dest, world);
}

// The engine always counts, and keeps no buffers. Level 2 asks for output of the counts so far.
// Levels beyond it have no meaning here.
void pcontrol(Call call, int level) {
  constexpr int kTell = 2;
  check_initialized(call);
  const char* wanted = std::getenv("HEDDLE_STATS");
  if (level != kTell || wanted == nullptr || std::strcmp(wanted, "1") != 0) return;
  heddle_worker_stats all{};
  all.size = sizeof all;
  must(call, heddle_worker_stats_read(default_context().worker, &all));
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::fprintf(stderr,
               "%s: PE %d so far, by the engine: puts %llu gets %llu atomics %llu messages %llu bytes %llu again %llu "
               "polls %llu\n",
               call, g_state.my_pe, number(all.puts), number(all.gets), number(all.atomics), number(all.messages),
               number(all.bytes), number(all.again), number(all.polls));
}

void manage_cache(Call call) {
  check_initialized(call);
  full_fence();
}

void manage_cache_line(Call call, const void* /*dest*/) {
  manage_cache(call);
}

void info_get_version(Call call, int* major, int* minor) {
  if (major == nullptr || minor == nullptr) fail(call, "%s is null", major == nullptr ? "major" : "minor");
  *major = SHMEM_MAJOR_VERSION;
  *minor = SHMEM_MINOR_VERSION;
}

void info_get_name(Call call, char* name) {
  if (name == nullptr) fail(call, "name is null");
  std::snprintf(name, SHMEM_MAX_NAME_LEN, "%s", SHMEM_VENDOR_STRING);
}

void tell_calls(heddle_context context) {
  using Hook = void(heddle_context, decltype(&heddle_trace_begin), decltype(&heddle_trace_end));
  auto* const hook = reinterpret_cast<Hook*>(::dlsym(RTLD_DEFAULT, "heddle_shmem_calls"));
  if (hook != nullptr) hook(context, &heddle_trace_begin, &heddle_trace_end);
}

}  // namespace heddle::shmem
