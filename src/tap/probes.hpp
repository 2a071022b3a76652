// Static probes (USDT), for bpftrace, perf and gdb: each is one nop, and a note in the library that
// says where it stands and where its arguments are then. docs/debugging.md lists them; the names
// and the order of their arguments stay. Decision 0063.
//
// The macros of <sys/sdt.h> are used here and nowhere else. Without that header, or with
// HEDDLE_USDT=OFF, the functions do nothing.
#pragma once

#include <cstdint>

#if !defined(HEDDLE_NO_USDT) && __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define HEDDLE_PROBE(count, name, ...) STAP_PROBE##count(heddle, name __VA_OPT__(, ) __VA_ARGS__)
#else
#define HEDDLE_PROBE(count, name, ...) heddle::no_probe(__VA_ARGS__)
#endif

namespace heddle::tap {

template <class... Arguments>
void no_probe(const Arguments&... arguments) {
  (static_cast<void>(arguments), ...);
}

// ---- operations of a job with HEDDLE_PROBES=1 ---------------------------------------------------

struct PostedProbe {
  std::uint32_t worker;
  std::uint32_t opcode;
  std::uint32_t rank;
  std::uint32_t peer;  // worker there
  std::uint64_t bytes;
  std::uint64_t token;  // 0: nobody is told of its end, or it has ended
};
inline void probe_posted(const PostedProbe& posted) {
  HEDDLE_PROBE(6, posted, posted.worker, posted.opcode, posted.rank, posted.peer, posted.bytes, posted.token);
}
inline void probe_refused(std::uint32_t worker, std::uint32_t opcode, std::uint32_t rank, std::uint32_t peer) {
  HEDDLE_PROBE(4, refused, worker, opcode, rank, peer);
}
inline void probe_arrived(std::uint32_t worker, std::uint32_t rank, std::uint32_t peer, std::uint32_t bytes,
                          std::uint32_t kind) {
  HEDDLE_PROBE(5, arrived, worker, rank, peer, bytes, kind);
}
inline void probe_ended(std::uint32_t worker, std::uint64_t token, std::int32_t status) {
  HEDDLE_PROBE(3, ended, worker, token, status);
}
inline void probe_handler_begin(std::uint32_t handler, std::uint32_t rank, std::uint32_t peer, std::uint64_t bytes) {
  HEDDLE_PROBE(4, handler_begin, handler, rank, peer, bytes);
}
inline void probe_handler_end(std::uint32_t handler) {
  HEDDLE_PROBE(1, handler_end, handler);
}

// ---- always -------------------------------------------------------------------------------------

// A wait that was not over at once. `worker` ~0: on none, or on several.
inline void probe_wait_begin(const char* call, std::uint32_t worker) {
  HEDDLE_PROBE(2, wait_begin, call, worker);
}
inline void probe_wait_end(const char* call, std::uint32_t worker) {
  HEDDLE_PROBE(2, wait_end, call, worker);
}
inline void probe_sleep_begin(std::int64_t ns) {
  HEDDLE_PROBE(1, sleep_begin, ns);
}
inline void probe_sleep_end() {
  HEDDLE_PROBE(, sleep_end);
}
// A handler of class USER runs, on the thread in heddle_run_tasks.
inline void probe_task_begin(std::uint32_t worker, std::uint32_t handler) {
  HEDDLE_PROBE(2, task_begin, worker, handler);
}
inline void probe_task_end(std::uint32_t worker, std::uint32_t handler) {
  HEDDLE_PROBE(2, task_end, worker, handler);
}
// A run of a collective, the same number in both and in its steps: which operation, of which team
// (its identity), the how-manieth call there.
inline void probe_collective_begin(const void* run, const char* operation, std::uint64_t team, std::uint64_t number) {
  HEDDLE_PROBE(4, collective_begin, run, operation, team, number);
}
inline void probe_collective_step(const void* run, std::uint64_t executed) {
  HEDDLE_PROBE(2, collective_step, run, executed);
}
inline void probe_collective_end(const void* run, std::uint64_t team, std::uint64_t number) {
  HEDDLE_PROBE(3, collective_end, run, team, number);
}

}  // namespace heddle::tap

#undef HEDDLE_PROBE
