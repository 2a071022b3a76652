#include "engine/context.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/fence.hpp"
#include "base/membarrier.hpp"
#include "base/nearest.hpp"
#include "base/timeout.hpp"
#include "base/wait.hpp"
#include "engine/one_thread.hpp"
#include "engine/worker.hpp"

namespace heddle::engine {

static_assert(wire::kTransportKeyBytes == transport::kKeyBytes &&
              wire::kTransportKeysBytes == transport::kWideKeyBytes);

Context::Context(base::Environment environment) : environment_(std::move(environment)) {
  environment_.clock = &clock_;
}

Context::~Context() {
  close_handle(handle_);
  if (helpers_ != nullptr) helpers_->stop();
  while (Worker* worker = workers_.any()) end_worker(worker);
  // what was under way for it has ended with the workers
  delete attachment_.load(std::memory_order_acquire);
  reclaim();  // no worker is left to name anything
  while (const auto remote = remotes_.remove_any()) transport_->release(remote->memory);
  while (const auto region = owned_regions_.remove_any()) free_region(*region);
}

base::Result<std::unique_ptr<Context>> Context::join(const ContextOptions& options) {
  auto config = base::Config::read();
  if (!config) return config.status();
  base::Environment environment;
  environment.config = std::move(*config);
  std::unique_ptr<Context> context(new Context(std::move(environment)));
  if (const base::Status status = context->open_parts(options); status != HEDDLE_DONE) return status;
  context->handle_ = open_handle(kType, context.get());
  if (context->handle_ == 0) return base::fail(HEDDLE_ERR_NO_MEMORY, "all handles of this process are open");
  return context;
}

base::Status Context::open_parts(const ContextOptions& options) {
  base::Level level{};
  const std::string& wanted = environment_.config.text(base::Var::log);
  if (!base::Log::parse(wanted, &level)) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_LOG=\"%s\" is none of error, warn, info, debug", wanted.c_str());
  }
  const std::string& sharing = environment_.config.text(base::Var::sharing);
  const auto named = sharing_named(sharing);
  if (!named) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_SHARING=\"%s\" is not exclusive, shared, offload, delegate or mutex",
                      sharing.c_str());
  }
  default_sharing_ = *named;
  const std::string& offload = environment_.config.text(base::Var::small_offload);
  const auto small_offload = offload_policy_named(offload);
  if (!small_offload) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_SMALL_OFFLOAD=\"%s\" is not off, on or auto", offload.c_str());
  }
  small_offload_ = *small_offload;
  extension_ = options.extension;
  // Before the job is joined, which can be done only once: what is wrong here can be mended and
  // tried again.
  const std::string progress =
      options.progress != nullptr ? options.progress : environment_.config.text(base::Var::progress);
  const auto policy = policy_named(progress);
  if (!policy) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_PROGRESS=\"%s\" is not none, dedicated:N (1-%u), idle or adaptive",
                      progress.c_str(), Policy::kMostDedicated);
  }
  const std::string& completer = environment_.config.text(base::Var::completer);
  const auto completer_place = completer_named(completer);
  if (!completer_place) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_COMPLETER=\"%s\" is not together or apart", completer.c_str());
  }
  if (const base::Status status = transport::check_choice(options.transport, environment_.config);
      status != HEDDLE_DONE) {
    return status;
  }
  auto bootstrap = bootstrap::open(options.bootstrap, environment_);
  if (!bootstrap) return bootstrap.status();
  bootstrap_ = std::move(*bootstrap);
  environment_.log = base::Log(level, rank());
  if (rank() == 0) {
    for (const std::string& name : environment_.config.unknown()) {
      const std::string meant(base::nearest_variable(name));
      environment_.log.line(base::Level::warn,
                            "%s is not a variable of Heddle and has no effect%s%s%s; `heddle info settings` lists them",
                            name.c_str(), meant.empty() ? "" : " (did you mean ", meant.c_str(),
                            meant.empty() ? "" : "?)");
    }
  }
  known_failed_.resize(size());
  crowd_.expect(bootstrap_->place(rank()).size, std::thread::hardware_concurrency());
  job_ = wire::digest(std::as_bytes(std::span(bootstrap_->secret())));
  const auto name = transport::choose(options.transport, *bootstrap_, environment_.config);
  if (!name) return name.status();
  if (const base::Status status = open_transport(*name); status != HEDDLE_DONE) return status;
  environment_.log.line(base::Level::info, "rank %u of %u joined by %s; transport %s; %u hardware threads to run on",
                        rank(), size(), bootstrap_->name(), transport_->describe().c_str(),
                        std::thread::hardware_concurrency());
  open_helpers(*policy);
  open_executors(*completer_place);
  return HEDDLE_DONE;
}

base::Status Context::open_transport(const std::string& name) {
  const bool one_thread = transport::one_thread(name, environment_);
  auto transport = one_thread ? OneThread::open(ExecutorLoop::of_process(),
                                                [&] { return transport::open(name, *bootstrap_, environment_); })
                              : transport::open(name, *bootstrap_, environment_);
  if (!transport) return transport.status();
  transport_ = std::move(*transport);
  return HEDDLE_DONE;
}

void Context::open_executors(CompleterThread completer) {
  const std::uint64_t wanted = environment_.config.number(base::Var::executors);
  if (!one_thread()) {
    executors_ = std::make_unique<Executors>(wanted, completer, *transport_);
    return;
  }
  executors_ = std::make_unique<Executors>(ExecutorLoop::of_process());
  const bool other = wanted != 1 || completer != CompleterThread::together || default_sharing_ != Sharing::offload;
  default_sharing_ = Sharing::offload;
  environment_.log.line(base::Level::info, "one thread makes all calls of %s: every worker is in offload mode%s",
                        transport_->capabilities().name,
                        other ? ", whatever HEDDLE_SHARING, HEDDLE_EXECUTORS and HEDDLE_COMPLETER say" : "");
}

void Context::open_helpers(const Policy& policy) {
  handover_ = policy.helps() && base::membarrier_private_ready();
  if (policy.helps() && !handover_) {
    environment_.log.line(base::Level::warn,
                          "this kernel has no membarrier: HEDDLE_PROGRESS does not help exclusive workers");
  }
  helpers_ = std::make_unique<Helpers>(policy, *transport_, clock_, transport_->capabilities().max_workers);
}

base::Result<Worker*> Context::open_worker(const WorkerOptions& asked) {
  WorkerOptions options = asked;
  if (one_thread()) {
    options.sharing = Sharing::offload;
    options.no_help = true;  // a helper is another thread
  }
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t most = transport_->capabilities().max_workers - (internal_open_ ? 1 : 0);
    if (next_worker_ >= most || (options.internal && internal_open_)) {
      return base::fail(HEDDLE_ERR_NO_MEMORY,
                        "this context has opened all its %u workers%s; HEDDLE_MAX_WORKERS raises that", next_worker_,
                        internal_open_ || options.internal ? ", one more is for collectives" : "");
    }
    index = options.internal ? internal_worker() : next_worker_++;
    internal_open_ = internal_open_ || options.internal;
  }
  const bool can_help = options.sharing != Sharing::exclusive || (helpers_->policy().helps() && handover_);
  const bool helped = !options.no_help && can_help;
  auto worker = Worker::open(*this, index, {options.sharing, helped, options.aggregation});
  if (!worker) return worker.status();
  auto added = workers_.add(std::move(*worker));
  if (!added) return added;
  try {
    (*added)->begin();
  } catch (...) {
    workers_.remove(*added);
    throw;
  }
  if (!helped) return added;
  try {
    helpers_->add(*added);
  } catch (...) {
    end_worker(*added);
    throw;
  }
  return added;
}

// Operations that a living peer may still serve are not cancelled: it may be reading the memory
// that they name. The number of them has to fall, since any other sign of life, an event or an end,
// may come from what peers begin, who would hold the close for ever.
base::Status Context::quiet_before_close(Worker* worker) {
  const auto bound_ns = static_cast<std::int64_t>(environment_.config.number(base::Var::close_timeout));
  base::Timeout timeout(bound_ns == 0 ? base::Timeout::kForever : bound_ns, *environment_.clock);
  std::uint64_t left = worker->unfinished_operations();
  const base::Status status = worker->until({"heddle_worker_close"}, [&]() -> base::Status {
    const base::Status quiet = worker->try_quiet();
    if (quiet != HEDDLE_AGAIN || !timeout.over()) return quiet;
    const std::uint64_t still = worker->unfinished_operations();
    if (still != 0 && still >= std::exchange(left, still)) return HEDDLE_ERR_TIMEOUT;
    timeout.renew();
    return HEDDLE_AGAIN;
  });
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  static_cast<void>(base::fail(
      status,
      "worker %u stays open: the number of its unfinished operations and queued commands, %llu, has not "
      "fallen for %.3g s (HEDDLE_CLOSE_TIMEOUT); the ranks that they are for live, and may not have done their part",
      worker->index(), static_cast<unsigned long long>(left), static_cast<double>(bound_ns) / 1e9));
  environment_.log.line(base::Level::warn, "heddle_worker_close: %s", base::last_message());
  worker->report_operations();
  return status;
}

base::Status Context::close_worker(Worker* worker) {
  const base::Status status = quiet_before_close(worker);
  if (status == HEDDLE_ERR_STATE || status == HEDDLE_ERR_TIMEOUT) return status;
  // A peer whose message was received waits for the answer: it is told, unless it takes nothing for
  // long.
  base::Timeout timeout(kAnswersNs, *environment_.clock);
  const auto answered = worker->until({"heddle_worker_close"}, [&]() -> base::Status {
    const base::Status answers = worker->try_answer();
    return answers == HEDDLE_AGAIN && timeout.over() ? HEDDLE_ERR_TIMEOUT : answers;
  });
  if (answered == HEDDLE_ERR_TIMEOUT) {
    environment_.log.line(base::Level::warn,
                          "a worker was closed with answers to peers that took none of them for %lld s; what they wait "
                          "for ends with CANCELLED",
                          static_cast<long long>(kAnswersNs / 1'000'000'000));
  }
  end_worker(worker);
  return status;
}

// Operations that could not be waited for are cancelled while the worker is still known, so that
// what they name stays.
void Context::end_worker(Worker* worker) {
  helpers_->remove(worker);
  worker->end();
  workers_.remove(worker);
}

base::Result<Region*> Context::open_region(void* address, std::uint64_t bytes) {
  auto memory = address == nullptr ? transport_->allocate(bytes) : transport_->enroll(address, bytes);
  if (!memory) return memory.status();
  return add_region(*memory, address == nullptr);
}

base::Result<Region*> Context::add_region(const transport::LocalMemory& memory, bool allocated) {
  Region undo{this, memory, 0, allocated};
  try {
    undo.number = regions_.add(memory.address, memory.bytes);
    auto added = undo.number != 0
                     ? owned_regions_.add(std::make_unique<Region>(undo))
                     : base::Result<Region*>(base::fail(HEDDLE_ERR_NO_MEMORY, "a context has at most %zu regions",
                                                        memory::RegionTable::kChunk * memory::RegionTable::kChunks));
    if (!added) free_region(undo);
    return added;
  } catch (...) {
    free_region(undo);
    throw;
  }
}

base::Result<LentMemory> Context::lend(std::uint32_t rank, void* address, std::uint64_t bytes) {
  LentMemory lent;
  try {
    auto memory = transport_->enroll_for(rank, address, bytes);
    if (!memory) return memory.status();
    lent.memory = *memory;
    lent.number = regions_.add(address, bytes);
    if (lent.number != 0) return lent;
  } catch (const std::bad_alloc&) {
    lent.number = 0;
  }
  if (lent.memory.address != nullptr) transport_->withdraw(lent.memory);
  return base::fail(HEDDLE_ERR_NO_MEMORY, "there is no room for one more region; the message was not sent");
}

void Context::take_back(const LentMemory& lent) {
  regions_.remove(lent.number);
  transport_->withdraw(lent.memory);
}

void Context::close_region(Region* region) {
  if (const auto taken = owned_regions_.remove(region)) free_region(*taken);
}

void Context::free_region(const Region& region) {
  if (region.number != 0) regions_.remove(region.number);
  region.allocated ? transport_->free(region.memory) : transport_->withdraw(region.memory);
}

Region* Context::region_around(const void* address, std::uint64_t bytes) {
  Region* found = nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  owned_regions_.for_each([&](Region& region) {
    const auto first = reinterpret_cast<std::uintptr_t>(region.memory.address);
    if (begin >= first && begin - first <= region.memory.bytes && bytes <= region.memory.bytes - (begin - first)) {
      found = &region;
    }
  });
  return found;
}

Attachment* Context::attach(std::unique_ptr<Attachment> attachment) {
  Attachment* before = nullptr;
  if (!attachment_.compare_exchange_strong(before, attachment.get(), std::memory_order_acq_rel)) return before;
  Attachment* kept = attachment.release();  // the context's from here on
  helpers_->attach(kept);
  return kept;
}

std::array<std::byte, wire::kPackedRegionBytes> Context::pack(const Region& region) const {
  return wire::encode({job_, rank(), region.number, region.memory.bytes, region.memory.key.bytes});
}

std::size_t Context::packed_bytes(const Region& region) const {
  return wire::packed_bytes({job_, rank(), region.number, region.memory.bytes, region.memory.key.bytes});
}

std::array<std::byte, wire::kNarrowRegionBytes> Context::pack_for(std::uint32_t rank, const Region& region) const {
  const transport::WideKey key = transport_->key_for(rank, region.memory.key);
  return wire::encode_narrow({job_, this->rank(), region.number, region.memory.bytes, key.bytes});
}

base::Result<RemoteRegion*> Context::import(std::span<const std::byte> packed) {
  auto name = wire::decode_region(packed);
  if (!name) return name.status();
  if (name->job != job_) return base::fail(HEDDLE_ERR_PROTOCOL, "this packed region is of another job");
  if (name->rank >= size()) {
    return base::fail(HEDDLE_ERR_RANK, "this packed region is of rank %u, the job has %u ranks", name->rank, size());
  }
  transport::WideKey key;
  key.bytes = name->key;
  auto memory = transport_->import(name->rank, name->narrow ? key.front() : transport_->key_for(name->rank, key));
  if (!memory) return memory.status();
  try {
    auto added = add_remote(*name, *memory);
    if (!added) transport_->release(*memory);
    return added;
  } catch (...) {
    transport_->release(*memory);
    throw;
  }
}

base::Result<RemoteRegion*> Context::add_remote(const wire::PackedRegion& name, const transport::RemoteMemory& memory) {
  auto remote = std::make_unique<RemoteRegion>();
  remote->direct = memory.direct;
  remote->bytes = std::min(memory.bytes, name.bytes);
  remote->direct_bytes = memory.direct != nullptr ? remote->bytes : 0;
  remote->rank = name.rank;
  remote->context = this;
  remote->number = name.region;
  remote->memory = memory;
  if (name.rank != rank() && failed(name.rank)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u, the owner of this region, has failed", name.rank);
  }
  auto added = remotes_.add(std::move(remote));
  note_failures();  // the owner may have died between the check and the entry in the list
  return added;
}

void Context::close_remote(RemoteRegion* remote) {
  {
    const std::lock_guard lock(retired_mutex_);
    retired_remotes_.reserve(retired_remotes_.size() + 1);  // before anything has happened
    auto taken = remotes_.remove(remote);
    if (taken == nullptr) return;
    taken->closed.store(true, std::memory_order_relaxed);
    retired_remotes_.push_back(std::move(taken));
    retired_.fetch_add(1, std::memory_order_relaxed);
  }
  reclaim();
}

base::Result<Counter*> Context::open_counter(const Worker* only, bool counts_done) {
  return counters_.add(std::make_unique<Counter>(*this, only, counts_done));
}

void Context::close_counter(Counter* counter) {
  {
    const std::lock_guard lock(retired_mutex_);
    retired_counters_.reserve(retired_counters_.size() + 1);
    auto taken = counters_.remove(counter);
    if (taken == nullptr) return;
    taken->close();
    retired_counters_.push_back(std::move(taken));
    retired_.fetch_add(1, std::memory_order_relaxed);
  }
  reclaim();
}

void Context::reclaim() noexcept {
  const std::lock_guard lock(retired_mutex_);
  const auto named = [this](auto&& names) {
    bool found = false;
    workers_.for_each([&](const Worker& worker) { found = found || names(worker); });
    return found;
  };
  std::erase_if(retired_remotes_, [&](const auto& remote) {
    if (named([&](const Worker& worker) { return worker.names_remote(remote.get()); })) return false;
    transport_->release(remote->memory);
    return true;
  });
  std::erase_if(retired_counters_, [&](const auto& counter) {
    return !named([&](const Worker& worker) { return worker.names_counter(counter.get()); });
  });
  retired_.store(retired_remotes_.size() + retired_counters_.size(), std::memory_order_relaxed);
}

void Context::register_handler(std::uint32_t number, Handler handler) {
  const std::lock_guard lock(mutex_);
  handlers_.set(number, handler);
}

void Context::report_operations() {
  for (Worker* worker : workers_.all()) worker->report_operations();
}

void Context::abort(int code, const char* message) {
  bootstrap_->abort(code >= 0 && code <= 255 ? code : 1, message);
  std::abort();  // not reached: no bootstrap returns from its abort()
}

void Context::note_failures() {
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    if (!failed(rank)) continue;
    if (rank != this->rank()) {
      remotes_.for_each([rank](RemoteRegion& remote) {
        if (remote.rank != rank) return;
        remote.failed.store(true, std::memory_order_relaxed);
        remote.direct_bytes.store(0, std::memory_order_relaxed);
      });
    }
    const std::lock_guard lock(mutex_);
    if (known_failed_[rank]) continue;
    known_failed_[rank] = true;
    environment_.log.line(base::Level::info, "rank %u has failed or left; operations to it end with PEER_FAILED", rank);
  }
}

void Context::report_drop(std::uint32_t worker, heddle_peer source, const char* why) {
  {
    const std::lock_guard lock(mutex_);
    if (drop_reported_) return;
    drop_reported_ = true;
  }
  environment_.log.line(base::Level::warn,
                        "worker %u dropped a message from rank %u worker %u: %s (further ones are only counted, see "
                        "heddle_worker_stats_read)",
                        worker, source.rank, source.worker, why);
}

}  // namespace heddle::engine
