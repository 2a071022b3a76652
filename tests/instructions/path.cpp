// Executes one operation many times, for counting instructions under callgrind: path OP N. Usually
// a job of one; in a larger one, which has other transports, each rank is its own peer.
//
// Only code inside the count_ functions is counted (callgrind's --toggle-collect), so set-up does
// not matter. Running it for two N removes the part that does not grow with N. See
// scripts/count_instructions.py.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "heddle/heddle.h"

namespace {

constexpr std::uint32_t kHandler = 1;
constexpr std::uint64_t kBatch = 16;  // messages under way: few enough for every ring

struct Self {
  heddle_context context{};
  heddle_worker worker{};
  heddle_counter counter{};
  heddle_remote remote{};
  heddle_am_message message{};
  heddle_peer peer{0, 0};
  std::uint64_t value = 7;
  std::uint64_t target = 0;
  std::uint64_t words[32] = {};
  std::uint64_t place[32] = {};
  heddle_receive receives[kBatch];
};

std::uint64_t received = 0;

void on_message(const heddle_am_arrival*, void*) {
  ++received;
}

void must(heddle_status status) {
  if (status >= 0) return;
  std::fprintf(stderr, "path: %s: %s\n", heddle_status_name(status), heddle_last_error());
  std::exit(1);
}

void open(Self* self) {
  must(heddle_context_join(nullptr, &self->context));
  must(heddle_worker_open(self->context, nullptr, &self->worker));
  heddle_counter_options counter{};
  counter.size = sizeof counter;
  counter.worker = self->worker;
  must(heddle_counter_create(self->context, &counter, &self->counter));
  heddle_region region{};
  must(heddle_region_alloc(self->context, 4096, &region));
  std::uint32_t size = 0;
  must(heddle_context_size(self->context, &size));
  must(heddle_context_rank(self->context, &self->peer.rank));
  std::vector<heddle_remote_region> regions(size);
  must(heddle_region_exchange(self->context, region, regions.data()));
  self->remote.region = regions[self->peer.rank];
  must(heddle_am_register(self->context, kHandler, on_message, nullptr));
  self->message.handler = kHandler;
  self->message.payload = &self->value;
  self->message.payload_bytes = 8;
}

}  // namespace

// Named without mangling, so that callgrind can be told what to count.
extern "C" {

[[gnu::noinline]] void count_put(Self* self, std::uint64_t n) {
  heddle_completion completion{};
  completion.counter = self->counter;
  for (std::uint64_t i = 0; i < n; ++i) heddle_put(self->worker, &self->value, 8, self->remote, &completion);
}
[[gnu::noinline]] void count_post_get(Self* self, std::uint64_t n) {
  heddle_completion completion{};
  completion.counter = self->counter;
  for (std::uint64_t i = 0; i < n; ++i) heddle_get(self->worker, &self->target, 8, self->remote, &completion);
}
[[gnu::noinline]] void count_get(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_get(self->worker, &self->value, 8, self->remote, nullptr);
}
[[gnu::noinline]] void count_fetch_add(Self* self, std::uint64_t n) {
  const heddle_fetch fetch{1, 0, &self->value};
  for (std::uint64_t i = 0; i < n; ++i) {
    heddle_fetch_atomic(self->worker, HEDDLE_ADD64, self->remote, &fetch, nullptr);
  }
}
[[gnu::noinline]] void count_am_send(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_am(self->worker, self->peer, &self->message, nullptr);
}
[[gnu::noinline]] void count_am_receive(Self* self, std::uint64_t target) {
  while (received < target) heddle_worker_progress(self->worker);
}

[[gnu::noinline]] void count_send(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_send(self->worker, self->peer, 5, &self->value, 8, nullptr);
}
[[gnu::noinline]] void count_recv(Self* self, std::uint64_t n) {
  const heddle_wanted wanted{self->peer, 5, UINT64_MAX};
  for (std::uint64_t i = 0; i < n; ++i) {
    heddle_recv(self->worker, &wanted, &self->target, 8, &self->receives[i], nullptr);
  }
}
[[gnu::noinline]] void count_arrive(Self* self, std::uint64_t n) {
  while (self->receives[n - 1].status == HEDDLE_POSTED) heddle_worker_progress(self->worker);
}

// For a message whose return, or a counter, tells when its source is free.
[[gnu::noinline]] void count_send_counted(Self* self, std::uint64_t n) {
  heddle_completion completion{};
  completion.counter = self->counter;
  completion.when = HEDDLE_WHEN_LOCAL;
  for (std::uint64_t i = 0; i < n; ++i) heddle_send(self->worker, self->peer, 5, &self->value, 8, &completion);
}
[[gnu::noinline]] void count_wait(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_recv_wait(self->worker, &self->receives[i], -1);
}
// One message, received by a call that waits: what a round trip has on one side.
[[gnu::noinline]] void count_turn(Self* self, std::uint64_t bytes) {
  const heddle_wanted wanted{self->peer, 5, UINT64_MAX};
  heddle_send(self->worker, self->peer, 5, self->words, bytes, nullptr);
  heddle_recv(self->worker, &wanted, self->place, bytes, &self->receives[0], nullptr);
  heddle_recv_wait(self->worker, &self->receives[0], -1);
}
// Nothing is under way, and nothing comes.
[[gnu::noinline]] void count_quiet(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_quiet(self->worker);
}
[[gnu::noinline]] void count_idle(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) heddle_worker_progress(self->worker);
}

// Counts kBatch operations with all work until their end.
[[gnu::noinline]] void count_burst_put(Self* self) {
  for (std::uint64_t i = 0; i < kBatch; ++i) heddle_put(self->worker, &self->value, 8, self->remote, nullptr);
  heddle_quiet(self->worker);
}
[[gnu::noinline]] void count_burst_get(Self* self) {
  for (std::uint64_t i = 0; i < kBatch; ++i) heddle_get(self->worker, &self->target, 8, self->remote, nullptr);
  heddle_quiet(self->worker);
}
[[gnu::noinline]] void count_burst_am(Self* self, std::uint64_t target) {
  for (std::uint64_t i = 0; i < kBatch; ++i) heddle_am(self->worker, self->peer, &self->message, nullptr);
  while (received < target) heddle_worker_progress(self->worker);
  heddle_quiet(self->worker);
}

}  // extern "C"

namespace {

// Windows of tagged messages, as programs exchange them.
void run_windows(Self* self, bool counted, std::uint64_t n) {
  std::uint64_t batch = kBatch;
  asm volatile("" : "+r"(batch));  // not known: else the compiler makes functions of other names
  for (std::uint64_t sent = 0; sent < n; sent += kBatch) {
    count_recv(self, batch);
    counted ? count_send_counted(self, batch) : count_send(self, batch);
    count_arrive(self, batch);
    count_wait(self, batch);
    count_quiet(self, batch);
    // Not counted: a worker that thinks it sees a stream looks less often.
    for (std::uint64_t i = 0; i < 4 * kBatch; ++i) heddle_worker_progress(self->worker);
    count_idle(self, batch);
  }
}

// False: there is no such operation.
bool run_bursts(Self* self, const char* op, std::uint64_t n) {
  for (std::uint64_t done = kBatch; done <= n; done += kBatch) {
    if (std::strcmp(op, "burst_put") == 0) {
      count_burst_put(self);
    } else if (std::strcmp(op, "burst_get") == 0) {
      count_burst_get(self);
    } else if (std::strcmp(op, "burst_am") == 0) {
      count_burst_am(self, done);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr,
                 "usage: path "
                 "put|get|post_get|fetch_add|am|am_64|tagged|counted|turn_BYTES|burst_put|burst_get|burst_am N    (N a "
                 "multiple of %llu)\n",
                 static_cast<unsigned long long>(kBatch));
    return 2;
  }
  const char* op = argv[1];
  const std::uint64_t n = std::strtoull(argv[2], nullptr, 10);
  Self self;
  open(&self);
  if (std::strcmp(op, "put") == 0) {
    count_put(&self, n);
  } else if (std::strcmp(op, "get") == 0) {
    count_get(&self, n);
  } else if (std::strcmp(op, "post_get") == 0) {
    // Not more at a time than the worker's queue takes.
    for (std::uint64_t posted = 0; posted < n; posted += kBatch) {
      count_post_get(&self, kBatch);
      must(heddle_quiet(self.worker));
    }
  } else if (std::strcmp(op, "fetch_add") == 0) {
    count_fetch_add(&self, n);
  } else if (std::strcmp(op, "am") == 0 || std::strcmp(op, "am_64") == 0) {
    if (std::strcmp(op, "am_64") == 0) {  // the most that lies in a command
      self.message.payload = self.words;
      self.message.payload_bytes = 64;
    }
    for (std::uint64_t sent = 0; sent < n; sent += kBatch) {
      count_am_send(&self, kBatch);
      count_am_receive(&self, sent + kBatch);
      // Not counted: a worker that thinks it sees a stream looks less often, and these polls would
      // be counted as receiving.
      for (std::uint64_t i = 0; i < 4 * kBatch; ++i) heddle_worker_progress(self.worker);
    }
    if (received != n) return 1;
  } else if (std::strcmp(op, "tagged") == 0) {
    run_windows(&self, false, n);
  } else if (std::strcmp(op, "counted") == 0) {
    run_windows(&self, true, n);
  } else if (std::strncmp(op, "turn_", 5) == 0) {
    const std::uint64_t bytes = std::min<std::uint64_t>(std::strtoull(op + 5, nullptr, 10), sizeof self.words);
    for (std::uint64_t sent = 0; sent < n; ++sent) {
      count_turn(&self, bytes);
      // Not counted, as above: in a round trip looks that find nothing come between.
      for (std::uint64_t i = 0; i < 4; ++i) heddle_worker_progress(self.worker);
    }
  } else if (!run_bursts(&self, op, n)) {
    std::fprintf(stderr, "path: there is no operation \"%s\"\n", op);
    return 2;
  }
  // Whether the operations took place at all.
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  must(heddle_worker_stats_read(self.worker, &stats));
  if (stats.puts + stats.gets + stats.atomics + stats.messages + stats.sends != n) {
    std::fprintf(stderr, "path: not all operations were accepted\n");
    return 1;
  }
  must(heddle_context_leave(self.context));
  return 0;
}
