#include "worker/context.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/fence.hpp"
#include "base/wait.hpp"
#include "worker/one_thread.hpp"
#include "worker/sharing.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

Context::Context(base::Environment environment) : engine::Job(std::move(environment)) {}

Context::~Context() {
  engine::close_handle(handle_);
  if (has_joined()) bootstrap().observe(nullptr);
  if (helpers_ != nullptr) helpers_->stop();
  while (Worker* worker = workers_.any()) end_worker(worker);
  // what was under way for it has ended with the workers
  delete attachment_.load(std::memory_order_acquire);
  objects_.clear();
}

base::Result<std::unique_ptr<Context>> Context::join(const ContextOptions& options) {
  auto config = base::Config::read();
  if (!config) return config.status();
  base::Environment environment;
  environment.config = std::move(*config);
  std::unique_ptr<Context> context(new Context(std::move(environment)));
  if (const base::Status status = context->open_parts(options); status != HEDDLE_DONE) return status;
  context->handle_ = engine::open_handle(kType, context.get());
  if (context->handle_ == 0) return base::fail(HEDDLE_ERR_NO_MEMORY, "all handles of this process are open");
  context->inspection_.named(context->handle_);
  return context;
}

base::Status Context::open_parts(const ContextOptions& options) {
  base::Level level{};
  const std::string& wanted = environment().config.text(base::Var::log);
  if (!base::Log::parse(wanted, &level)) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_LOG=\"%s\" is none of error, warn, info, debug", wanted.c_str());
  }
  const std::string& sharing = environment().config.text(base::Var::sharing);
  const Mode* named = mode_named(sharing);
  if (named == nullptr) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_SHARING=\"%s\" is no sharing mode; there are %s", sharing.c_str(),
                      mode_names().c_str());
  }
  default_sharing_ = named->sharing;
  const std::string& offload = environment().config.text(base::Var::small_offload);
  const auto small_offload = offload_policy_named(offload);
  if (!small_offload) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_SMALL_OFFLOAD=\"%s\" is not off, on or auto", offload.c_str());
  }
  small_offload_ = *small_offload;
  extension_ = options.extension;
  // This comes before the job is joined, because a process can join only once: after an error here
  // the caller can correct the cause and try again.
  const std::string progress =
      options.progress != nullptr ? options.progress : environment().config.text(base::Var::progress);
  const auto policy = policy_named(progress);
  if (!policy) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_PROGRESS=\"%s\" is not none, dedicated:N (1-%u), idle or adaptive",
                      progress.c_str(), Policy::kMostDedicated);
  }
  if (const base::Status status = transport::check_choice(options.transport, environment().config);
      status != HEDDLE_DONE) {
    return status;
  }
  if (const base::Status status = join_job(options.bootstrap, level); status != HEDDLE_DONE) return status;
  if (rank() == 0) {
    for (const std::string& name : environment().config.unknown()) {
      const std::string meant = base::nearest_variable(name);
      environment().log.line(
          base::Level::warn,
          "%s is not a variable of Heddle and has no effect%s%s%s; `heddle info settings` lists them", name.c_str(),
          meant.empty() ? "" : " (did you mean ", meant.c_str(), meant.empty() ? "" : "?)");
    }
  }
  crowd_.expect(bootstrap().place(rank()).size, std::thread::hardware_concurrency());
  if (const std::span<std::byte> board = bootstrap().board(); !board.empty()) {
    crowd_.share({reinterpret_cast<base::CoreLine*>(board.data()), board.size() / sizeof(base::CoreLine)});
  }
  const auto choice = transport::choose(options.transport, bootstrap(), environment());
  if (!choice) return choice.status();
  if (const base::Status status = open_transport(choice->name); status != HEDDLE_DONE) return status;
  environment().log.line(base::Level::info, "rank %u of %u joined by %s; transport %s; %u hardware threads to run on",
                         rank(), size(), bootstrap().name(), transport().describe().c_str(),
                         std::thread::hardware_concurrency());
  open_helpers(*policy);
  if (one_thread()) {
    environment().log.line(base::Level::info, "one thread makes all calls of %s: every worker is in offload mode%s",
                           transport().capabilities().name,
                           default_sharing_ != Sharing::offload ? ", whatever HEDDLE_SHARING says" : "");
    default_sharing_ = Sharing::offload;
  }
  inspection_.begin();
  return HEDDLE_DONE;
}

base::Status Context::open_transport(const std::string& name) {
  const bool one_thread = transport::one_thread(name, environment());
  auto transport = one_thread ? OneThread::open(Executor::of_process(),
                                                [&] { return transport::open(name, bootstrap(), environment()); })
                              : transport::open(name, bootstrap(), environment());
  if (!transport) return transport.status();
  set_transport(std::move(*transport));
  return open_tracer();
}

Executor& Context::executor() {
  if (one_thread()) return Executor::of_process();
  const std::lock_guard lock(executor_mutex_);
  if (executor_ == nullptr) executor_ = std::make_unique<Executor>(&transport());
  return *executor_;
}

void Context::open_helpers(const Policy& policy) {
  handover_ = policy.helps() && base::membarrier_private_ready();
  if (policy.helps() && !handover_) {
    environment().log.line(base::Level::warn,
                           "this kernel has no membarrier: HEDDLE_PROGRESS does not help exclusive workers");
  }
  helpers_ = std::make_unique<Helpers>(policy, transport(), clock(), crowd_, transport().capabilities().max_workers);
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
    const std::uint32_t most = transport().capabilities().max_workers - (internal_open_ ? 1 : 0);
    if (next_worker_ >= most || (options.internal && internal_open_)) {
      return base::fail(
          HEDDLE_ERR_NO_MEMORY,
          "this context has opened all its %u workers%s (closed ones count: peers may still know their numbers, "
          "so none is used again); keep workers open, or raise HEDDLE_MAX_WORKERS",
          next_worker_, internal_open_ || options.internal ? ", one more is for collectives" : "");
    }
    index = options.internal ? internal_worker() : next_worker_++;
    internal_open_ = internal_open_ || options.internal;
  }
  const bool can_help = options.sharing != Sharing::exclusive || (helpers_->policy().helps() && handover_);
  const bool helped = !options.no_help && can_help;
  auto worker = Worker::open(*this, index, {options.sharing, helped, options.user, options.attends});
  if (!worker) return worker.status();
  auto added = workers_.add(std::move(*worker), [](Worker& opened, std::uint64_t id) { opened.core().handle.id = id; });
  if (!added) return added;
  try {
    (*added)->begin();
    inspection_.add(**added);
  } catch (...) {
    (*added)->end();
    workers_.remove(*added);
    throw;
  }
  // A worker without a gate is listed for its owner, which moves it on while it waits for something
  // else.
  if (!helped && !(*added)->core().unshared) return added;
  try {
    helpers_->add(*added);
  } catch (...) {
    end_worker(*added);
    throw;
  }
  return added;
}

// Operations that a living peer may still serve are not cancelled: the peer may be reading the
// memory that they name. The timeout starts again only when the number of these operations falls.
// Other signs of life, such as events, may come from operations that peers begin, so peers could
// delay the close for ever.
base::Status Context::quiet_before_close(Worker* worker) {
  const auto bound_ns = static_cast<std::int64_t>(environment().config.number(base::Var::close_timeout));
  base::Timeout timeout(bound_ns == 0 ? base::Timeout::kForever : bound_ns, *environment().clock);
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
  environment().log.line(base::Level::warn, "heddle_worker_close: %s", base::last_message());
  worker::report_operations(*worker);
  return status;
}

base::Status Context::close_worker(Worker* worker) {
  const base::Status status = quiet_before_close(worker);
  if (status == HEDDLE_ERR_STATE || status == HEDDLE_ERR_TIMEOUT) return status;
  // A peer whose message was received waits for the answer. The answer is sent, unless the peer
  // accepts nothing for long.
  base::Timeout timeout(kAnswersNs, *environment().clock);
  const auto answered = worker->until({"heddle_worker_close"}, [&]() -> base::Status {
    const base::Status answers = worker->try_answer();
    return answers == HEDDLE_AGAIN && timeout.over() ? HEDDLE_ERR_TIMEOUT : answers;
  });
  if (answered == HEDDLE_ERR_TIMEOUT) {
    environment().log.line(
        base::Level::warn,
        "a worker was closed with answers to peers that took none of them for %lld s; what they wait "
        "for ends with CANCELLED",
        static_cast<long long>(kAnswersNs / 1'000'000'000));
  }
  end_worker(worker);
  return status;
}

// Operations that could not be waited for are cancelled while the worker is still registered, so
// that the objects that they name stay alive.
void Context::end_worker(Worker* worker) {
  helpers_->remove(worker);
  inspection_.remove(*worker);
  worker->end();
  workers_.remove(worker);
}

Attachment* Context::attach(std::unique_ptr<Attachment> attachment) {
  Attachment* before = nullptr;
  if (!attachment_.compare_exchange_strong(before, attachment.get(), std::memory_order_acq_rel)) return before;
  Attachment* kept = attachment.release();  // the context's from here on
  helpers_->attach(kept);
  return kept;
}

void Context::report_operations() {
  for (Worker* worker : workers_.all()) worker::report_operations(*worker);
}

void Context::abort(int code, const char* message) {
  bootstrap().abort(code >= 0 && code <= 255 ? code : 1, message);
  std::abort();  // not reached: no bootstrap returns from its abort()
}

}  // namespace heddle::worker
