// The effects of deaths over TCP on UCX alone: no part of Heddle is in this program. Three
// processes with three workers each fetch and add at each other's memory, by endpoints that handle
// errors of peers; one is killed at a random moment. Counted are survivors that UCX has ended, and
// operations to the dead that have not ended a second after their endpoint was closed by force.
// Arguments: how many deaths, and within how many microseconds of all being busy. LD_LIBRARY_PATH
// chooses the UCX.
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <utility>

namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::uint32_t kWorkers = 3;
constexpr std::uint32_t kDepth = 6;  // operations under way on one endpoint
constexpr std::uint64_t kSecond = 1'000'000'000;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "ucx_raw_death: %s\n", what);
  std::_Exit(99);
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

struct Blob {
  std::size_t bytes;
  std::array<unsigned char, 2000> data;
};

struct Rank {
  std::array<Blob, kWorkers> addresses;
  Blob key;
  std::uint64_t word_address;
  std::uint32_t lost;
  std::uint64_t done;
};

// In memory of all processes.
struct Job {
  std::atomic<std::uint32_t> shown{0};
  std::atomic<std::uint32_t> busy{0};
  std::atomic<std::uint32_t> dead{kRanks};
  std::atomic<std::uint32_t> over{0};
  std::array<Rank, kRanks> ranks;
};

// ---- UCX ----------------------------------------------------------------------------------------

struct Ucx {
#define RAW_FUNCTION(name) decltype(&ucp_##name) name = find<decltype(&ucp_##name)>("ucp_" #name)
  RAW_FUNCTION(config_read);
  RAW_FUNCTION(config_modify);
  RAW_FUNCTION(init_version);
  RAW_FUNCTION(worker_create);
  RAW_FUNCTION(worker_get_address);
  RAW_FUNCTION(worker_progress);
  RAW_FUNCTION(mem_map);
  RAW_FUNCTION(rkey_pack);
  RAW_FUNCTION(ep_create);
  RAW_FUNCTION(ep_rkey_unpack);
  RAW_FUNCTION(ep_close_nbx);
  RAW_FUNCTION(atomic_op_nbx);
  RAW_FUNCTION(request_free);
  RAW_FUNCTION(request_check_status);
  RAW_FUNCTION(get_version_string);
#undef RAW_FUNCTION

  template <class Function>
  static Function find(const char* name) {
    static void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    void* const symbol = library == nullptr ? nullptr : ::dlsym(library, name);
    if (symbol == nullptr) fail("there is no libucp.so.0, or it lacks a function");
    return reinterpret_cast<Function>(symbol);
  }
};

void expect(ucs_status_t status, const char* what) {
  if (status != UCS_OK) fail(what);
}

struct Endpoint;
struct Slot {
  Endpoint* endpoint = nullptr;
  bool under_way = false;
  std::uint64_t operand = 1;
  std::uint64_t result = 0;
};

struct Endpoint {
  const Ucx* ucx = nullptr;
  std::uint32_t rank = 0;
  ucp_ep_h handle = nullptr;
  ucp_rkey_h key = nullptr;
  bool broken = false;
  std::uint64_t done = 0;  // operations with the correct result
  void* closing = nullptr;
  std::uint64_t closed_at = 0;  // ns; 0: not yet
  std::array<Slot, kDepth> slots;
};

void on_broken(void* arg, ucp_ep_h, ucs_status_t) {
  static_cast<Endpoint*>(arg)->broken = true;
}
void on_end(void* request, ucs_status_t status, void* user) {
  auto* slot = static_cast<Slot*>(user);
  if (status == UCS_OK) ++slot->endpoint->done;
  slot->under_way = false;
  slot->endpoint->ucx->request_free(request);
}

void show(Blob* to, const void* data, std::size_t bytes) {
  if (bytes > to->data.size()) fail("an address is too long");
  to->bytes = bytes;
  std::memcpy(to->data.data(), data, bytes);
}

class Process {
 public:
  Process(Job& job, std::uint32_t rank) : job_(job), rank_(rank) { open(); }

  void run() {
    ++job_.shown;
    while (job_.shown < kRanks) sched_yield();
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer != rank_) connect(endpoints_[worker][peer], worker, peer);
      }
    }
    ++job_.busy;
    bool told = false;
    std::uint64_t until = 0;
    while (until == 0 || now_ns() < until) {
      step();
      if (!told && settled()) {
        told = true;
        ++job_.over;
      }
      if (until == 0 && job_.over == kRanks - 1) until = now_ns() + kSecond / 10;
    }
  }

 private:
  void open() {
    ucp_config_t* config = nullptr;
    expect(ucx_.config_read(nullptr, nullptr, &config), "no configuration");
    expect(ucx_.config_modify(config, "TLS", "tcp"), "no TCP");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AMO64 | UCP_FEATURE_RMA;
    ucp_context_h context = nullptr;
    expect(ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context), "no context");
    Rank& mine = job_.ranks[rank_];
    for (std::uint32_t i = 0; i < kWorkers; ++i) {
      const ucp_worker_params_t none{};
      expect(ucx_.worker_create(context, &none, &workers_[i]), "no worker");
      ucp_address_t* address = nullptr;
      std::size_t bytes = 0;
      expect(ucx_.worker_get_address(workers_[i], &address, &bytes), "no address");
      show(&mine.addresses[i], address, bytes);
    }
    ucp_mem_map_params_t memory{};
    memory.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    memory.address = &word_;
    memory.length = sizeof word_;
    ucp_mem_h handle = nullptr;
    expect(ucx_.mem_map(context, &memory, &handle), "no memory");
    void* key = nullptr;
    std::size_t bytes = 0;
    expect(ucx_.rkey_pack(context, handle, &key, &bytes), "no key");
    show(&mine.key, key, bytes);
    mine.word_address = reinterpret_cast<std::uintptr_t>(&word_);
  }

  void connect(Endpoint& endpoint, std::uint32_t worker, std::uint32_t peer) {
    const Rank& theirs = job_.ranks[peer];
    endpoint.ucx = &ucx_;
    endpoint.rank = peer;
    for (Slot& slot : endpoint.slots) slot.endpoint = &endpoint;
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(theirs.addresses[worker].data.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {on_broken, &endpoint};
    expect(ucx_.ep_create(workers_[worker], &params, &endpoint.handle), "no endpoint");
    expect(ucx_.ep_rkey_unpack(endpoint.handle, theirs.key.data.data(), &endpoint.key), "no key of a peer");
  }

  void step() {
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
      ucx_.worker_progress(workers_[worker]);
      for (Endpoint& endpoint : endpoints_[worker]) {
        if (endpoint.rank == rank_ || endpoint.ucx == nullptr) continue;
        move(endpoint);
      }
    }
  }

  void move(Endpoint& endpoint) {
    if (endpoint.broken) return close(endpoint);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE |
                          UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    params.cb.send = on_end;
    params.datatype = ucp_dt_make_contig(8);
    for (Slot& slot : endpoint.slots) {
      if (slot.under_way) continue;
      params.user_data = &slot;
      params.reply_buffer = &slot.result;
      slot.under_way = true;
      void* request = ucx_.atomic_op_nbx(endpoint.handle, UCP_ATOMIC_OP_ADD, &slot.operand, 1,
                                         job_.ranks[endpoint.rank].word_address, endpoint.key, &params);
      if (request == nullptr || UCS_PTR_IS_ERR(request)) slot.under_way = false;
      if (UCS_PTR_IS_ERR(request)) break;
    }
  }

  void close(Endpoint& endpoint) {
    if (endpoint.closed_at != 0) return;
    if (endpoint.handle != nullptr) {
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      params.flags = UCP_EP_CLOSE_FLAG_FORCE;
      endpoint.closing = ucx_.ep_close_nbx(std::exchange(endpoint.handle, nullptr), &params);
    }
    const bool ended = endpoint.closing == nullptr || UCS_PTR_IS_ERR(endpoint.closing) ||
                       ucx_.request_check_status(endpoint.closing) != UCS_INPROGRESS;
    if (ended) endpoint.closed_at = now_ns();
  }

  // The dead one's endpoints are closed, and all has ended or had a second for it.
  bool settled() {
    const std::uint32_t dead = job_.dead;
    if (dead == kRanks) return false;
    std::uint32_t lost = 0;
    std::uint64_t ended = 0;
    for (auto& of_worker : endpoints_) {
      const Endpoint& endpoint = of_worker[dead];
      std::uint32_t left = 0;
      for (const Slot& slot : endpoint.slots) left += slot.under_way ? 1 : 0;
      if (endpoint.closed_at == 0 || (left != 0 && now_ns() - endpoint.closed_at < kSecond)) return false;
      lost += left;
      for (const Endpoint& each : of_worker) ended += each.done;
    }
    job_.ranks[rank_].lost = lost;
    job_.ranks[rank_].done = ended;
    return true;
  }

  Job& job_;
  const std::uint32_t rank_;
  const Ucx ucx_;
  std::array<ucp_worker_h, kWorkers> workers_{};
  std::uint64_t word_ = 0;
  std::array<std::array<Endpoint, kRanks>, kWorkers> endpoints_;
};

// ---- deaths -------------------------------------------------------------------------------------

struct Counts {
  std::uint32_t well = 0;
  std::uint32_t lost = 0;     // runs in which operations have never ended
  std::uint32_t aborted = 0;  // runs in which UCX has ended a survivor
  std::uint32_t other = 0;
  std::uint64_t done = 0;  // operations of survivors
};

Counts die_once(std::mt19937& random, std::uint64_t band_us) {
  void* shared = ::mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("no shared memory");
  Job& job = *new (shared) Job;
  std::array<pid_t, kRanks> pids{};
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    pids[rank] = ::fork();
    if (pids[rank] == 0) {
      ::alarm(20);
      Process(job, rank).run();
      std::_Exit(0);
    }
  }
  const std::uint64_t until = now_ns() + 10 * kSecond;
  while (job.busy < kRanks && now_ns() < until) sched_yield();
  const std::uint32_t victim = static_cast<std::uint32_t>(random() % kRanks);
  const std::uint64_t moment = now_ns() + random() % band_us * 1000;
  while (now_ns() < moment) sched_yield();
  ::kill(pids[victim], SIGKILL);
  job.dead = victim;
  Counts counts;
  std::uint32_t lost = 0;
  for (std::uint32_t left = kRanks; left > 0; --left) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == pids[victim]) continue;
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGABRT || WTERMSIG(status) == SIGSEGV)) {
      counts.aborted = 1;
      ++job.over;  // the other need not wait for it
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      counts.other = 1;
    }
  }
  for (const Rank& rank : job.ranks) {
    lost += rank.lost;
    counts.done += rank.done;
  }
  if (counts.aborted != 0) counts.other = 0;  // an end that follows from the first
  if (lost != 0) counts.lost = 1;
  counts.well = counts.lost + counts.aborted + counts.other == 0 ? 1 : 0;
  ::munmap(shared, sizeof(Job));
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  const int deaths = argc > 1 ? std::atoi(argv[1]) : 50;
  const std::uint64_t band_us = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 50'000;
  if (deaths < 1 || band_us < 1) fail("usage: ucx_raw_death [DEATHS [MICROSECONDS]], both at least 1");
  std::random_device device;
  const unsigned seed = device();
  std::mt19937 random(seed);
  Counts all;
  for (int i = 0; i < deaths; ++i) {
    const Counts one = die_once(random, band_us);
    all.well += one.well;
    all.lost += one.lost;
    all.aborted += one.aborted;
    all.other += one.other;
    all.done += one.done;
  }
  std::printf(
      "UCX %s, seed %u: %d deaths, %u ended well; in %u operations never ended, in %u UCX ended a survivor, in %u "
      "something else; %llu operations were done\n",
      Ucx().get_version_string(), seed, deaths, all.well, all.lost, all.aborted, all.other,
      static_cast<unsigned long long>(all.done));
  return all.other == 0 && all.done > 0 ? 0 : 1;  // a UCX that refuses everything has shown nothing
}
