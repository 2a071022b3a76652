// What tests tell the idle libibverbs (idle_verbs.cpp), and what it counts. Every rank of the
// process has the same adapter.
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

  // ---- set
  // Requests of connected pairs wait until this is false and idle_verbs_go_on() was called.
  std::atomic<bool> holds{false};
  std::atomic<std::uint32_t> lose_every{0};                // of datagrams; 0: none is lost
  std::atomic<std::uint32_t> twice_every{0};               // of datagrams: they come twice
  std::atomic<std::uint64_t> most_registered{UINT64_MAX};  // bytes
  std::atomic<std::uint32_t> most_receives{1024};          // of a shared queue, opened afterwards
  std::atomic<std::uint32_t> most_inline{128};             // bytes of a request, likewise
};

}  // namespace heddle::transport::verbs

extern "C" {
extern heddle::transport::verbs::IdleVerbs idle_verbs;
// Requests that were held are executed.
void idle_verbs_go_on();
// A datagram that no rank has sent comes to the pair with that number. False: it finds no place.
bool idle_verbs_forge(std::uint32_t pair, const void* data, std::uint32_t bytes);
}
