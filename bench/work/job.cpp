#include "work/job.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver/driver.hpp"
#include "harness/duplex.hpp"
#include "harness/fairness.hpp"
#include "harness/network.hpp"
#include "programs/heddle.hpp"

namespace heddle::bench::work {

namespace {

heddle_context job_context{};  // the one job of this program; must() ends it

// The channel: the driver's, or one that rank 0 makes and names to the other.
std::optional<harness::Channel> open_channel(const harness::Options& options, std::uint32_t rank, std::uint32_t size) {
  if (!options.channel.empty()) return harness::Channel::open(options.channel);
  std::optional<harness::Channel> mine = rank == 0 ? harness::Channel::create(options.retry_ns) : std::nullopt;
  char path[64] = {};
  if (mine) std::snprintf(path, sizeof path, "%s", mine->path().c_str());
  std::vector<char> paths(sizeof path * size);  // rank 0's is the first
  must(heddle_context_exchange(job_context, path, sizeof path, paths.data()), "heddle_context_exchange");
  if (rank == 0) return mine;
  return harness::Channel::open(paths.data());
}

std::uint64_t largest_size(const harness::Options& options) {
  const auto sizes = harness::sizes_or(options, {std::uint64_t{1} << 20});
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  if (!harness::wants_bench(options, "duplex")) return largest;
  return std::max(largest, harness::duplex_stretch(options) * harness::duplex_most_threads(options));
}

std::uint32_t workers_needed(const harness::Options& options) {
  std::uint32_t needed = options.workers;
  const auto raise = [&](const std::vector<std::uint32_t>& threads) {
    needed = std::max(needed, *std::max_element(threads.begin(), threads.end()));
  };
  raise(harness::threads_of(options));
  if (harness::wants_bench(options, "overhead")) raise(harness::threads_or(options, harness::kOverheadThreads));
  if (harness::wants_bench(options, "duplex")) raise(harness::threads_or(options, harness::kDuplexThreads));
  if (harness::wants_bench(options, "convolution")) raise(harness::threads_or(options, harness::kConvolutionThreads));
  if (harness::wants_bench(options, "oversubscription")) raise({harness::oversubscription_threads(8)});
  if (harness::wants_bench(options, "fairness")) raise({harness::kFairnessThreads});
  if (harness::network_of(options) != nullptr) raise(harness::network_threads(options));
  return needed;
}

bool only_programs(const harness::Options& options);

int measure_all(const harness::Options& options, harness::Channel& channel) {
  std::vector<harness::Sample> samples;
  const bool alone = options.channel.empty();
  const harness::Origin origin = harness::origin_of(options.command, harness::Cores::allowed().count());
  harness::Session session(channel, options, [&](const harness::Sample& sample) {
    if (alone) {
      samples.push_back(sample);
      std::fprintf(stderr, "%s %s: %.4g %s\n", sample.key.bench.c_str(), sample.key.op.c_str(), sample.value,
                   sample.key.unit.c_str());
    } else {
      harness::print_sample(sample);
    }
  });
  if (only_programs(options)) {
    programs::run_heddle(job_context, &session, options, channel);
  } else {
    Job job(job_context, workers_needed(options), largest_size(options), options.memory == "adopted");
    run_pingpong(session, job);
    run_messages(session, job);
    run_tagged(session, job);
    run_rate(session, job);
    run_sharing(session, job);
    run_bandwidth(session, job);
    run_atomics(session, job);
    run_gups(session, job);
    run_reaction(session, job);
    run_compute(session, job);
    run_overhead(session, job);
    run_fairness(session, job);
    run_convolution(session, job);
    run_overlap(session, job);
    run_aggregation(session, job);
    harness::Crowd pair(channel, session.rank(), 2);
    run_duplex(&session, options, pair, job);
    if (session.wants("oversubscription")) run_oversubscription(&session, job);
    run_network(&session, options, job);
  }
  return alone && session.rank() == 0 ? driver::finish(options, origin, samples) : 0;
}

// The programs have a job of their own: their workers would be too many beside others.
bool only_programs(const harness::Options& options) {
  return options.names == std::vector<std::string>{"programs"};
}

// Ranks 0 and 1 measure; the others sleep, so that the cores are theirs.
int measure_mixed(const harness::Options& options, harness::Channel& channel, std::uint32_t rank, std::uint32_t size) {
  Job job(job_context, workers_needed(options), largest_size(options), options.memory == "adopted");
  harness::Crowd crowd(channel, rank, size);
  if (crowd.leads()) {
    channel.set_rank(rank);
    harness::Session session(channel, options, harness::print_sample);
    run_network(&session, options, job);
  } else {
    run_network(nullptr, options, job);
  }
  crowd.meet_asleep();
  return 0;
}

// A job of more than two processes: what can be done by several pairs of them.
int measure_pairs(const harness::Options& options, harness::Channel& channel, std::uint32_t rank, std::uint32_t size) {
  if (only_programs(options)) {
    std::optional<harness::Session> session;
    if (rank < 2) channel.set_rank(rank);
    if (rank < 2) session.emplace(channel, options, harness::print_sample);
    programs::run_heddle(job_context, session ? &*session : nullptr, options, channel);
    return 0;
  }
  if (harness::wants_bench(options, "mixed_job")) return measure_mixed(options, channel, rank, size);
  Job job(job_context, workers_needed(options), largest_size(options), options.memory == "adopted");
  harness::Crowd crowd(channel, rank, size);
  const bool oversubscribed = harness::wants_bench(options, "oversubscription");
  if (!crowd.leads()) {
    if (oversubscribed) {
      run_oversubscription(nullptr, job);
      return 0;
    }
    run_duplex(nullptr, options, crowd, job);
    return 0;
  }
  channel.set_rank(rank);
  harness::Session session(channel, options, harness::print_sample);
  if (oversubscribed) {
    run_oversubscription(&session, job);
    return 0;
  }
  run_duplex(&session, options, crowd, job);
  return 0;
}

constexpr std::uint64_t kPage = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

bool workers_allowed(const harness::Options& options, std::string* error) {
  if (options.workers == 0) return true;
  for (const std::uint32_t threads : harness::threads_of(options)) {
    if (threads <= options.workers) continue;
    *error = std::to_string(threads) + " threads would share " + std::to_string(options.workers) +
             " workers, and an exclusive worker is for one thread; give --workers " + std::to_string(threads) +
             ", or --threads " + std::to_string(options.workers) + ", or leave --workers out";
    return false;
  }
  return true;
}

heddle_status must(heddle_status status, const char* what) {
  if (status >= 0) return status;
  char message[512];
  std::snprintf(message, sizeof message, "heddle bench: %s: %s: %s", what, heddle_status_name(status),
                heddle_last_error());
  heddle_context_abort(job_context, 1, message);
  std::fprintf(stderr, "%s\n", message);  // there was no job to abort yet
  std::_Exit(1);
}

int take_part(const harness::Options& options) {
  must(heddle_context_join(nullptr, &job_context), "heddle_context_join");
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  must(heddle_context_rank(job_context, &rank), "heddle_context_rank");
  must(heddle_context_size(job_context, &size), "heddle_context_size");
  const bool named = options.names == std::vector<std::string>{"duplex"} ||
                     options.names == std::vector<std::string>{"oversubscription"} ||
                     options.names == std::vector<std::string>{"mixed_job"} || only_programs(options);
  const bool pairs = named && !options.channel.empty() && size % 2 == 0;
  if (size != 2 && !pairs) {
    if (rank == 0) std::fprintf(stderr, "heddle bench: the job has %u processes; it takes 2 (heddle run -n 2)\n", size);
    heddle_context_leave(job_context);
    return 2;
  }
  int status = 1;
  if (auto channel = open_channel(options, rank, size)) {
    if (size == 2) channel->set_rank(rank);
    status = size == 2 ? measure_all(options, *channel) : measure_pairs(options, *channel, rank, size);
  } else {
    std::perror("heddle bench: the shared page of the measurement");
    heddle_context_abort(job_context, 1, "cannot open the shared page of the measurement");
  }
  must(heddle_context_leave(job_context), "heddle_context_leave");
  return status;
}

// A copy whose target lies a little behind its source, counted from the beginnings of their pages,
// waits for its own stores. What malloc gives is 16 bytes behind, so that a get of 64 KiB would be
// measured a quarter slower than the same get by a peer.
Job::Pages Job::pages(std::uint64_t bytes) {
  const std::uint64_t whole = whole_pages(bytes);
  Pages memory(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)));
  if (memory == nullptr) {
    heddle_context_abort(job_context, 1, "heddle bench: no memory for the buffers");
    std::abort();
  }
  std::memset(memory.get(), 0, whole);
  return memory;
}

Job::Job(heddle_context context, std::uint32_t workers, std::uint64_t bytes, bool adopt)
    : context_(context), adopt_(adopt), buffer_(pages(bytes)), local_(pages(bytes)) {
  must(heddle_context_rank(context, &rank_), "heddle_context_rank");
  for (std::uint32_t i = 0; i < workers; ++i) {
    must(heddle_worker_open(context, nullptr, &workers_.emplace_back()), "heddle_worker_open");
  }
  must(heddle_region_alloc(context, kWordsBytes + bytes, &allocated_region_), "heddle_region_alloc");
  const heddle_region_options kept{sizeof kept, adopt ? 1U : 0U};
  must(heddle_region_register_with(context, buffer_.get(), adopt ? whole_pages(bytes) : bytes, &kept,
                                   &registered_region_),
       "heddle_region_register_with");
  std::uint32_t size = 0;
  must(heddle_context_size(context, &size), "heddle_context_size");
  allocated_.resize(size);
  registered_.resize(size);
  must(heddle_region_exchange(context, allocated_region_, allocated_.data()), "heddle_region_exchange");
  must(heddle_region_exchange(context, registered_region_, registered_.data()), "heddle_region_exchange");
  void* address = nullptr;
  must(heddle_region_address(allocated_region_, &address, nullptr), "heddle_region_address");
  own_ = static_cast<std::byte*>(address);
}

Job::~Job() {
  for (const heddle_worker worker : workers_) must(heddle_quiet(worker), "heddle_quiet");
  must(heddle_context_barrier(context_, workers_[0], HEDDLE_FOREVER), "heddle_context_barrier");
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    must(heddle_remote_region_release(allocated_[rank]), "heddle_remote_region_release");
    must(heddle_remote_region_release(registered_[rank]), "heddle_remote_region_release");
  }
  must(heddle_region_release(allocated_region_), "heddle_region_release");
  must(heddle_region_release(registered_region_), "heddle_region_release");
  for (const heddle_worker worker : workers_) must(heddle_worker_close(worker), "heddle_worker_close");
}

harness::Figure Job::figure(const char* bench, const std::string& op, const char* metric, std::uint64_t size,
                            double per_iteration) const {
  const char* transport = std::getenv("HEDDLE_TRANSPORT");
  if (transport == nullptr || *transport == '\0') transport = std::getenv("HEDDLE_TRANSPORTS");
  harness::Figure figure;
  figure.key.bench = bench;
  figure.key.op = op;
  figure.key.transport = transport != nullptr && *transport != '\0' ? transport : "shm";
  // Peers may have the same name.
  if (!harness::is_heddle(figure.key)) figure.key.transport = "heddle " + figure.key.transport;
  figure.key.sharing = "exclusive";
  figure.key.metric = metric;
  figure.key.size_bytes = size;
  figure.per_iteration = per_iteration;
  return figure;
}

}  // namespace heddle::bench::work
