#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "libraries/main.hpp"
#include "measure/all.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::BenchOptions;
using libraries::kExclusive;
using libraries::kModes;
using libraries::LockedHeddle;
using libraries::SharingMode;

// The channel: the driver's, or one that rank 0 makes and names to the others.
std::optional<harness::Channel> open_channel(const BenchOptions& options, std::uint32_t rank, std::uint32_t size) {
  if (!options.channel.empty()) return harness::Channel::open(options.channel);
  std::optional<harness::Channel> mine = rank == 0 ? harness::Channel::create(options.retry_ns) : std::nullopt;
  char path[64] = {};
  if (mine) std::snprintf(path, sizeof path, "%s", mine->path().c_str());
  std::vector<char> paths(sizeof path * size);  // rank 0's is the first
  must(heddle_context_exchange(job_context, path, sizeof path, paths.data()), "heddle_context_exchange");
  if (rank == 0) return mine;
  return harness::Channel::open(paths.data());
}

// The limit of bandwidth: the same copy by memcpy through the mapped pointer.
void measure_memcpy(Bench& bench, Heddle& library) {
  void* remote = nullptr;
  // not mapped: no such limit
  if (heddle_remote_pointer(library.at(bench.peer(), measure::kDataAt), &remote) != HEDDLE_DONE) return;
  const auto sizes = bench.sizes("bandwidth", {4096, 65536, 1U << 20}, measure::kMostBandwidthBytes);
  if (sizes.empty()) return;
  const measure::Buffer local(*std::ranges::max_element(sizes), bench.options());
  for (const bool out : {true, false}) {
    if (!bench.wants("bandwidth", out ? "put" : "get")) continue;
    for (const std::uint64_t size : sizes) {
      const char* op = out ? "memcpy" : "memcpy_get";
      harness::Figure one = bench.figure({"bandwidth", op, "bandwidth", size, static_cast<double>(size)});
      one.key.transport = "limit";
      one.key.sharing = "none";
      one.key.workers = 0;
      bench.at_origin(std::span(&one, 1), 1, measure::Owner::sleeps, [&](std::uint64_t n) {
        const std::uint64_t begin = harness::now_ns();
        for (std::uint64_t i = 0; i < n; ++i) {
          std::memcpy(out ? remote : local.data(), out ? local.data() : remote, size);
          asm volatile("" : : "r"(remote), "r"(local.data()) : "memory");  // every copy is wanted
        }
        return harness::Run{static_cast<double>(harness::now_ns() - begin)};
      });
    }
  }
}

// "" without helpers; the suffix of the figure's name. "_offload": small messages may be registered
// only.
std::string policy_suffix() {
  const char* set = std::getenv("HEDDLE_PROGRESS");
  const std::string policy = set != nullptr ? set : "";
  const char* small = std::getenv("HEDDLE_SMALL_OFFLOAD");
  const bool offloads = small != nullptr && std::string(small) != "off";
  return (policy.empty() || policy == "none" ? std::string() : "_" + policy) + (offloads ? "_offload" : "");
}

const char* kind_of_registered(const BenchOptions& options) {
  return options.memory == "adopted" ? "adopted" : "registered";
}

// With a worker for each thread. Benches that compare modes leave it out where others are named.
void measure_exclusive(Bench& bench, Heddle& library, Memory& memory) {
  const BenchOptions& options = bench.options();
  const bool named = options.sharing.empty() || harness::wants_sharing(options, kExclusive.name);
  if (options.memory == "allocated" || options.memory == "both") {
    if (bench.wants("pingpong")) measure::one_sided_latency(bench, library);
    if (bench.wants("bandwidth")) measure_memcpy(bench, library);
    if (bench.wants("bandwidth")) measure::bandwidth(bench, library);
    if (named) measure::overhead(bench, library);
  }
  if (bench.wants("pingpong")) measure::message_latency(bench, library);
  measure::run_rates(bench, library);
  if (bench.wants("atomics")) measure::atomics(bench, library);
  if (bench.wants("gups")) measure::gups(bench, library);
  if (bench.wants("duplex") && named) measure::duplex(bench, library);
  if (named) measure::overlap(bench, library, policy_suffix());
  measure::network(bench, library, true, true);
  run_reaction(bench, library);
  if (named) run_fairness(bench, library);
  if (named) run_convolution(bench, library);
  run_oversubscription(bench, library, memory);
  run_compute(bench);
  if (options.memory == "allocated") return;
  library.set_memory(kind_of_registered(options));
  bench.use(library);
  if (bench.wants("pingpong")) measure::one_sided_latency(bench, library);
  if (bench.wants("bandwidth")) measure::bandwidth(bench, library);
  if (named) measure::overhead(bench, library);
}

// With a worker for all threads: in the modes that are asked for, or in those that are there for
// comparing modes.
void measure_shared(Bench& bench, Memory& memory, std::uint32_t lanes, const SharingMode& mode) {
  const BenchOptions& options = bench.options();
  const bool any = options.sharing.empty();
  const bool named = harness::wants_sharing(options, mode.name);
  const bool usual = harness::wants_mode(options, mode.name);
  const bool offload = mode.sharing == HEDDLE_SHARING_OFFLOAD;
  const bool over_network = named || (any && (offload || mode.sharing == HEDDLE_SHARING_SHARED));
  const bool frontiers = bench.wants("convolution") && (named || (any && offload));
  const bool something = named || (usual && (bench.wants("overhead") || bench.wants("fairness"))) || frontiers ||
                         (over_network && harness::network_of(options) != nullptr);
  if (!something) return;
  bench.session().cores().unpin();  // an executor finds its core itself
  if (mode.locked) {
    LockedHeddle library(memory, mode, lanes);
    bench.use(library);
    measure::run_rates(bench, library);
    if (bench.wants("duplex")) measure::duplex(bench, library);
    if (options.memory == "allocated" || options.memory == "both") measure::overhead(bench, library);
    return;
  }
  Heddle library(memory, mode, lanes);
  bench.use(library);
  if (named) measure::run_rates(bench, library);
  if (named && bench.wants("duplex")) measure::duplex(bench, library);
  if (named) measure::overlap(bench, library, policy_suffix());
  const bool allocated = options.memory == "allocated" || options.memory == "both";
  if (usual && allocated) measure::overhead(bench, library);
  if (usual) run_doorbells(bench, mode.sharing);
  if (usual) run_fairness(bench, library);
  // Beside a worker for each thread the mode in which posting only registers the request, as
  // PIOMan's does.
  if (frontiers) run_convolution(bench, library);
  if (over_network) measure::network(bench, library, false, false);
  if (!usual || options.memory == "allocated") return;
  library.set_memory(kind_of_registered(options));
  bench.use(library);
  measure::overhead(bench, library);
}

void measure_programs(Bench& bench, Memory& memory, std::uint32_t lanes) {
  for (const SharingMode& mode : kModes) {
    if (mode.locked || !harness::wants_mode(bench.options(), mode.name)) continue;
    // an executor may run where the thread that opens its worker may run
    bench.session().cores().unpin();
    Heddle library(memory, mode, lanes);
    bench.use(library);
    mode.own ? measure::run_programs(bench, library) : measure::run_shared_programs(bench, library, true);
  }
}

void measure_all(harness::BenchSession& session) {
  Bench bench(session);
  const BenchOptions& options = session.options();
  const measure::Needs needs = measure::needs_of(session);
  const bool programs = measure::only_programs(options);
  Memory memory(needs.region_bytes, !programs, options.memory == "adopted");
  if (programs) return measure_programs(bench, memory, needs.lanes);
  if (harness::wants_bench(options, "mixed_job")) bench.only_first_pair();
  Heddle exclusive(memory, kExclusive, needs.lanes);
  bench.use(exclusive);
  measure_exclusive(bench, exclusive, memory);
  if (session.size() > 2) return;
  for (const SharingMode& mode : kModes) {
    if (!mode.own && mode.sharing != HEDDLE_SHARING_AUTO) measure_shared(bench, memory, needs.lanes, mode);
  }
}

// The samples of a session go to the driver. If there is none, rank 0 keeps them.
int measure_with(harness::Channel& channel, const BenchOptions& options) {
  std::vector<harness::Sample> samples;
  const bool alone = options.channel.empty();
  const harness::Origin origin = harness::origin_of(options.command, harness::Cores::allowed().count());
  harness::BenchSession session(channel, options, [&](const harness::Sample& sample) {
    if (!alone) return harness::print_sample(sample);
    samples.push_back(sample);
    std::fprintf(stderr, "%s %s: %.4g %s\n", sample.key.bench.c_str(), sample.key.op.c_str(), sample.value,
                 sample.key.unit.c_str());
  });
  harness::are_collectives(options) ? libraries::measure_collectives(session) : measure_all(session);
  return alone && session.rank() == 0 ? driver::finish(options, origin, samples) : 0;
}

// The measurements with more than one pair of processes, each alone.
bool takes_pairs(const BenchOptions& options) {
  const std::vector<std::string> names = {"duplex", "oversubscription", "mixed_job", "programs"};
  return options.names.size() == 1 && std::find(names.begin(), names.end(), options.names[0]) != names.end();
}

}  // namespace

int take_part(const BenchOptions& options) {
  must(heddle_context_join(nullptr, &job_context), "heddle_context_join");
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  must(heddle_context_rank(job_context, &rank), "heddle_context_rank");
  must(heddle_context_size(job_context, &size), "heddle_context_size");
  if (rank == 0 && !options.quick) libraries::warn_unoptimised("heddle bench");
  const bool pairs = takes_pairs(options) && !options.channel.empty() && size % 2 == 0;
  if (size != 2 && !pairs && !harness::are_collectives(options)) {
    if (rank == 0) std::fprintf(stderr, "heddle bench: the job has %u processes; it takes 2 (heddle run -n 2)\n", size);
    heddle_context_leave(job_context);
    return 2;
  }
  int status = 1;
  if (auto channel = open_channel(options, rank, size)) {
    channel->set_rank(rank, size);
    status = measure_with(*channel, options);
  } else {
    std::perror("heddle bench: the shared page of the measurement");
    heddle_context_abort(job_context, 1, "cannot open the shared page of the measurement");
  }
  must(heddle_context_leave(job_context), "heddle_context_leave");
  return status;
}

}  // namespace heddle::bench::work
