// The settings by which tests control the idle libibverbs (verbs_idle.cpp), and its counts. Every
// rank of the process has the same adapters: idle0 and idle3; idle1, which is far; idle2, whose
// port is down. If a test asks for them also idle4, which is iWARP; idle5, which is another network
// as EFA is; idle6, which has no shared receive queues.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::transport::verbs {

// The library exports one as `idle_verbs`. Relaxed: a test sets it while nothing is under way.
struct IdleVerbs {
  // ---- counted, of connected pairs
  std::atomic<std::uint64_t> doorbells{0};   // calls of ibv_post_send
  std::atomic<std::uint64_t> requests{0};    // in them
  std::atomic<std::uint64_t> signalled{0};   // of these
  std::atomic<std::uint64_t> registered{0};  // bytes
  std::atomic<std::uint64_t> pairs{0};       // that there are
  std::atomic<std::uint64_t> objects{0};     // likewise: all that objects_left counts
  std::atomic<std::uint64_t> unaligned{0};   // registrations that do not begin with a page
  std::atomic<std::uint64_t> events{0};      // of adapters, that were acknowledged
  // ibv_fork_init was called before anything was registered
  std::atomic<bool> fork_safe{false};

  // ---- set
  std::atomic<std::uint32_t> adapters{0b1111};  // a bit for each that there is
  // Requests of connected pairs wait until this is false and idle_verbs_go_on() was called.
  std::atomic<bool> holds{false};
  // The network is cut: requests of connected pairs fail, and datagrams are lost.
  std::atomic<bool> cut{false};
  // Adapters, a bit for each, whose connected pairs these two concern; datagrams are of all.
  std::atomic<std::uint32_t> concerned{~0U};
  std::atomic<std::uint32_t> lose_every{0};   // of datagrams; 0: none is lost
  std::atomic<std::uint32_t> twice_every{0};  // of datagrams: they come twice
  // So many calls fail, since there is no route: ibv_create_ah, and connecting a pair.
  std::atomic<std::uint32_t> fail_routes{0};
  std::atomic<std::uint32_t> fail_connects{0};
  // So many calls that make an object still succeed: registrations, queues, pairs, channels,
  // address handles.
  std::atomic<std::uint64_t> objects_left{UINT64_MAX};
  std::atomic<bool> refuses_resets{false};                   // of pairs
  std::atomic<bool> keeps_completions{false};                // of pairs that are reset or destroyed
  std::atomic<std::uint64_t> most_registered{UINT64_MAX};    // bytes
  std::atomic<std::uint32_t> most_receives{1024};            // of a shared queue, opened afterwards
  std::atomic<std::uint32_t> most_inline{128};               // bytes of a request, likewise
  std::atomic<std::uint32_t> most_bytes_of_idle1{1U << 30};  // of a transfer, likewise
};

}  // namespace heddle::transport::verbs

extern "C" {
extern heddle::transport::verbs::IdleVerbs idle_verbs;
// Requests that were held are executed.
void idle_verbs_go_on();
// All pairs for datagrams have an error.
void idle_verbs_break_datagrams();
// A datagram that no rank has sent comes to the pair with that number. False: it finds no receive.
bool idle_verbs_forge(std::uint32_t pair, const void* data, std::uint32_t bytes);
// A message of that length comes to the connected pair with that number, that its peer has not
// sent; nothing is written for it. False: there is no such pair, or it finds no entry.
bool idle_verbs_forge_message(std::uint32_t pair, std::uint32_t bytes);
// An adapter, as one rank has opened it (in that order), tells such an event (ibv_event_type) of
// itself, of its port, or of the first shared queue there. False: it has none.
bool idle_verbs_tell_event(std::uint32_t opened, int type);
}
