// Executes one operation many times over utofu on the emulator, by one of three layers, for
// counting instructions under callgrind: path_utofu put_8|put_32|put_64|get_64 N
// raw|transport|batch|api.
//
// The three do the same: kBatch operations to this rank's own memory are posted one by one; the
// program waits for the NIC, polls for their ends, identifies and counts them. `raw` calls uTofu
// alone, as a program that distinguishes several operations: the number of its operation travels as
// edata. `transport` is post() and poll() of transport.hpp, `batch` with one post() for all, `api`
// heddle.h.
// Only code inside the count_ functions is counted; the wait is outside.
#include <dlfcn.h>
#include <sched.h>
#include <utofu.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/config.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "heddle/heddle.h"
#include "transport/transport.hpp"

namespace {

using namespace heddle;  // NOLINT(google-build-using-namespace): a program

constexpr std::uint32_t kBatch = 16;
constexpr std::size_t kMemory = 4096;

struct Work {
  bool get = false;
  std::uint64_t bytes = 8;
  std::byte* local = nullptr;
  std::uint64_t ended = 0;
};

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "path_utofu: %s: %s\n", what, heddle_last_error());
  std::exit(1);
}
void must(bool well, const char* what) {
  if (!well) give_up(what);
}

// One operation each to a place of its own.
constexpr std::uint64_t place_of(std::uint64_t i) {
  return i * 64;
}

// ---- uTofu alone --------------------------------------------------------------------------------

struct Raw {
  decltype(&utofu_put) put;
  decltype(&utofu_put_piggyback) put_piggyback;
  decltype(&utofu_put_piggyback8) put_piggyback8;
  decltype(&utofu_get) get;
  decltype(&utofu_poll_tcq) poll_tcq;
  decltype(&utofu_poll_mrq) poll_mrq;
  utofu_vcq_hdl_t handle = 0;
  utofu_vcq_id_t vcq = 0;
  utofu_stadd_t local = 0;
  utofu_stadd_t remote = 0;
  std::array<std::uint64_t, 256> tokens{};  // of what is under way, by edata
  std::uint8_t next = 0;
};

struct Transported {
  base::SystemClock clock;
  base::Environment environment;
  bootstrap::inproc::ThreadJob job{1};
  std::unique_ptr<bootstrap::Bootstrap> bootstrap;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<transport::TransportWorker> worker;
  transport::LocalMemory memory;
  transport::RemoteMemory remote;
  std::array<transport::Command, kBatch> commands;
  std::array<transport::Completion, 2 * kBatch> completions;
};

struct Api {
  heddle_context context{};
  heddle_worker worker{};
  heddle_counter counter{};
  heddle_region region{};
  heddle_remote remote{};
};

template <class Function>
void look_up(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  must(*function != nullptr, name);
}

}  // namespace

// Named without mangling, so that callgrind can be told what to count.
extern "C" {

[[gnu::noinline]] void count_raw_post(Raw* raw, const Work* work) {
  for (std::uint64_t i = 0; i < kBatch; ++i) {
    const std::uint8_t tag = raw->next++;
    raw->tokens[tag] = i;
    constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    const utofu_stadd_t remote = raw->remote + place_of(i);
    int code = UTOFU_SUCCESS;
    if (work->get) {
      code = raw->get(raw->handle, raw->vcq, raw->local, remote, work->bytes, tag, kFlags, nullptr);
    } else if (work->bytes == 8) {
      std::uint64_t value = 0;
      std::memcpy(&value, work->local, sizeof value);
      code = raw->put_piggyback8(raw->handle, raw->vcq, value, remote, 8, tag, kFlags, nullptr);
    } else if (work->bytes <= 32) {
      code = raw->put_piggyback(raw->handle, raw->vcq, work->local, remote, work->bytes, tag, kFlags, nullptr);
    } else {
      code = raw->put(raw->handle, raw->vcq, raw->local, remote, work->bytes, tag, kFlags, nullptr);
    }
    if (code != UTOFU_SUCCESS) give_up("uTofu refuses a command");
  }
}
[[gnu::noinline]] void count_raw_poll(Raw* raw, Work* work) {
  void* data = nullptr;
  while (raw->poll_tcq(raw->handle, 0, &data) != UTOFU_ERR_NOT_FOUND) {
  }
  utofu_mrq_notice notice;
  for (;;) {
    const int code = raw->poll_mrq(raw->handle, 0, &notice);
    if (code == UTOFU_ERR_NOT_FOUND) return;
    if (code != UTOFU_SUCCESS) give_up("a command has failed");
    if (raw->tokens[notice.edata & 255U] < kBatch) ++work->ended;
  }
}

[[gnu::noinline]] void count_transport_post(Transported* self) {
  for (transport::Command& command : self->commands) {
    if (self->worker->post({&command, 1}) != 1) give_up("not accepted");
  }
}
[[gnu::noinline]] void count_transport_batch(Transported* self) {
  if (self->worker->post(self->commands) != kBatch) give_up("not accepted");
}
[[gnu::noinline]] void count_transport_poll(Transported* self, Work* work) {
  const auto& completions = self->completions;
  const std::size_t count = self->worker->poll(self->completions);
  for (std::size_t i = 0; i < count; ++i) {
    if (completions[i].status != HEDDLE_DONE) give_up("an operation has failed");
    if (completions[i].token < kBatch) ++work->ended;
  }
}

[[gnu::noinline]] void count_api_post(Api* api, const Work* work) {
  heddle_completion completion{};
  completion.counter = api->counter;
  for (std::uint64_t i = 0; i < kBatch; ++i) {
    heddle_remote remote = api->remote;
    remote.offset = place_of(i);
    const heddle_status status = work->get ? heddle_get(api->worker, work->local, work->bytes, remote, &completion)
                                           : heddle_put(api->worker, work->local, work->bytes, remote, &completion);
    if (status < 0) give_up("heddle refuses an operation");
  }
}
[[gnu::noinline]] void count_api_poll(Api* api) {
  heddle_worker_progress(api->worker);
}

}  // extern "C"

namespace {

using Unread = std::size_t (*)();

void wait_for(Unread unread) {
  while (unread() < kBatch) sched_yield();
}

void run_raw(void* library, Unread unread, Work* work, std::byte* memory, std::uint64_t n) {
  Raw raw;
  look_up(library, "utofu_put", &raw.put);
  look_up(library, "utofu_put_piggyback", &raw.put_piggyback);
  look_up(library, "utofu_put_piggyback8", &raw.put_piggyback8);
  look_up(library, "utofu_get", &raw.get);
  look_up(library, "utofu_poll_tcq", &raw.poll_tcq);
  look_up(library, "utofu_poll_mrq", &raw.poll_mrq);
  decltype(&utofu_create_vcq) create = nullptr;
  decltype(&utofu_query_vcq_id) name = nullptr;
  decltype(&utofu_reg_mem) register_memory = nullptr;
  decltype(&utofu_get_onesided_tnis) tnis = nullptr;
  look_up(library, "utofu_create_vcq", &create);
  look_up(library, "utofu_query_vcq_id", &name);
  look_up(library, "utofu_reg_mem", &register_memory);
  look_up(library, "utofu_get_onesided_tnis", &tnis);
  utofu_tni_id_t* ids = nullptr;
  std::size_t count = 0;
  must(tnis(&ids, &count) == UTOFU_SUCCESS && count > 0, "no TNI");
  must(create(ids[0], UTOFU_VCQ_FLAG_EXCLUSIVE, &raw.handle) == UTOFU_SUCCESS, "no VCQ");
  std::free(ids);
  must(name(raw.handle, &raw.vcq) == UTOFU_SUCCESS, "no name");
  must(register_memory(raw.handle, memory, kMemory, 0, &raw.remote) == UTOFU_SUCCESS, "memory");
  must(register_memory(raw.handle, work->local, kMemory, 0, &raw.local) == UTOFU_SUCCESS, "memory");
  for (std::uint64_t i = 0; i < n; i += kBatch) {
    count_raw_post(&raw, work);
    wait_for(unread);
    count_raw_poll(&raw, work);
  }
}

void run_transport(Unread unread, Work* work, std::uint64_t n, bool batch) {
  Transported self;
  self.environment.config = *base::Config::read();
  self.environment.log = base::Log(base::Level::error, 0);
  self.environment.clock = &self.clock;
  self.bootstrap = std::move(*bootstrap::inproc::open(self.job, 0));
  auto transport = transport::open("utofu", *self.bootstrap, self.environment);
  must(transport.ok(), "no transport");
  self.transport = std::move(*transport);
  auto memory = self.transport->allocate(kMemory);
  must(memory.ok(), "no memory");
  self.memory = *memory;
  auto remote = self.transport->import(0, memory->key);
  must(remote.ok(), "no import");
  self.remote = *remote;
  auto worker = self.transport->open_worker(0);
  must(worker.ok(), "no worker");
  self.worker = std::move(*worker);
  for (std::uint64_t i = 0; i < n; i += kBatch) {
    for (std::uint64_t k = 0; k < kBatch; ++k) {
      transport::Command& command = self.commands[k];
      command = {};
      command.opcode = work->get ? transport::Opcode::get : transport::Opcode::put;
      command.local = work->local;
      command.bytes = work->bytes;
      command.remote = &self.remote;
      command.offset = place_of(k);
      command.token = k;
    }
    batch ? count_transport_batch(&self) : count_transport_post(&self);
    wait_for(unread);
    count_transport_poll(&self, work);
  }
  self.worker.reset();
  self.transport->free(self.memory);
}

void run_api(Unread unread, Work* work, std::uint64_t n) {
  Api api;
  must(heddle_context_join(nullptr, &api.context) >= 0, "join");
  must(heddle_worker_open(api.context, nullptr, &api.worker) >= 0, "worker");
  heddle_counter_options options{};
  options.size = sizeof options;
  options.worker = api.worker;
  must(heddle_counter_create(api.context, &options, &api.counter) >= 0, "counter");
  must(heddle_region_alloc(api.context, kMemory, &api.region) >= 0, "region");
  must(heddle_region_exchange(api.context, api.region, &api.remote.region) >= 0, "exchange");
  for (std::uint64_t i = 0; i < n; i += kBatch) {
    count_api_post(&api, work);
    wait_for(unread);
    count_api_poll(&api);
  }
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  must(heddle_worker_stats_read(api.worker, &stats) >= 0, "stats");
  work->ended = stats.puts + stats.gets;
  must(heddle_quiet(api.worker) >= 0, "quiet");
  must(heddle_context_leave(api.context) >= 0, "leave");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr,
                 "usage: path_utofu put_8|put_32|put_64|get_64 N raw|transport|batch|api    (N a multiple of %u)\n",
                 kBatch);
    return 2;
  }
  const std::string_view layer = argv[3];
  const std::string_view operation = argv[1];
  const std::uint64_t n = std::strtoull(argv[2], nullptr, 10);
  const auto config = base::Config::read();
  must(config.ok(), "the settings");
  void* library = dlopen(config->text(base::Var::library_utofu).c_str(), RTLD_NOW | RTLD_LOCAL);
  must(library != nullptr, "HEDDLE_LIBRARIES=utofu=… is not the watched emulator");
  Unread unread = nullptr;
  look_up(library, "watched_unread", &unread);
  Work work;
  work.get = operation == "get_64";
  work.bytes = operation == "put_8" ? 8 : operation == "put_32" ? 32 : 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kMemory, 2 * kMemory));
  must(memory != nullptr, "memory");
  std::memset(memory, 0, 2 * kMemory);
  work.local = memory;
  if (layer == "raw") {
    run_raw(library, unread, &work, memory + kMemory, n);
  } else if (layer == "api") {
    run_api(unread, &work, n);
  } else {
    run_transport(unread, &work, n, layer == "batch");
  }
  if (work.ended != n) give_up("not all operations have ended");
  return 0;
}
