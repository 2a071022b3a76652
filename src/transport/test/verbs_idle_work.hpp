// The objects of the idle libibverbs, and the work of its pairs.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/test/verbs_idle.hpp"

namespace heddle::transport::verbs::idle {

inline constexpr std::uint32_t kGrhBytes = 40;  // the global routing header before a datagram

// The caller does something that no adapter allows.
[[noreturn]] void misused(const char* what);

struct Memory : ibv_mr {
  int rights = 0;
};

struct Queue;
struct Channel : ibv_comp_channel {
  std::deque<Queue*> events;
};

struct Queue : ibv_cq {
  std::deque<ibv_wc> entries;
  std::atomic<std::size_t> count{0};  // of them, for polls without the mutex
  bool armed = false;
  std::uint32_t unacknowledged = 0;
};

struct Receive {
  std::uint64_t number;
  ibv_sge buffer;  // length 0: none
};

struct Pair;
struct Shared : ibv_srq {
  std::deque<Receive> receives;
  std::uint32_t most = 0;
  std::vector<Pair*> starved;  // senders that wait for an entry
};

struct Work {
  ibv_send_wr request;
  ibv_sge part;
  std::unique_ptr<std::byte[]> inlined;
};

struct Pair : ibv_qp {
  ibv_qp_cap most{};
  bool tells_all = false;
  std::uint32_t peer = 0;
  std::uint32_t qkey = 0;
  std::uint32_t posted = 0;
  std::uint32_t freed = 0;  // up to here its slots may be used again
  std::deque<Work> sends;
  std::deque<Receive> receives;
};

struct AddressHandle : ibv_ah {};

struct Context : ibv_context {
  std::deque<ibv_async_event> events;  // as many as its descriptor says
  // The adapter does nothing any more for the rank that has opened it.
  std::atomic<bool> failed{false};
};
inline bool has_failed(const ibv_context* of) {
  return static_cast<const Context*>(of)->failed.load(std::memory_order_relaxed);
}

struct World {
  std::mutex mutex;                                     // guards all objects
  std::unordered_map<std::uint32_t, Memory*> memories;  // by key
  std::uint32_t next_key = 0x1000;
  std::vector<Pair*> pairs = {nullptr, nullptr};  // by number; 0 and 1 are not used
  std::vector<Shared*> shared;
  std::vector<Context*> contexts;  // as they were opened
  std::uint32_t datagrams = 0;
};
World& world();

// ---- with the mutex

// Of a transfer.
std::uint32_t most_bytes_of(const ibv_context* of);
// Executes the waiting requests, as far as that is possible.
void go_on(Pair& pair);
// The pair has an error: its requests end.
void break_pair(Pair& pair);
// It is reset, or ends: its completions go with it, as they do with most adapters.
void forget_completions(const Pair& pair);
// A write with immediate data has come to a connected pair, whose shared queue has an entry.
void tell(Pair& receiver, std::uint32_t bytes, std::uint32_t immediate);
// 0: it was accepted; otherwise the number of the error.
int accept(Pair& pair, const ibv_send_wr& request);
// The pair with that number, or null.
Pair* pair_of(std::uint32_t number);
// A datagram comes. False: it finds no receive.
bool deliver(std::uint32_t number, std::uint32_t qkey, const void* data, std::uint32_t bytes);

}  // namespace heddle::transport::verbs::idle
