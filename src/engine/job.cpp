#include "engine/job.hpp"

#include <array>
#include <cstdio>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "engine/tapped.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

Job::Job(base::Environment environment) : environment_(std::move(environment)) {
  environment_.clock = &clock_;
}

base::Status Job::join_job(const bootstrap::Options& options, base::Level level) {
  auto bootstrap = bootstrap::open(options, environment_);
  if (!bootstrap) return bootstrap.status();
  bootstrap_ = std::move(*bootstrap);
  environment_.log = base::Log(level, rank());
  known_failed_.resize(size());
  digest_ = wire::digest(std::as_bytes(std::span(bootstrap_->secret())));
  return HEDDLE_DONE;
}

base::Status Job::open_tracer() {
  const base::Config& config = environment_.config;
  const std::string& path = config.text(base::Var::trace);
  if (path.empty()) return HEDDLE_DONE;
  tap::TraceOptions options;
  options.path = path + ".rank" + std::to_string(rank());
  options.rank = rank();
  options.size = size();
  options.job = digest_;
  options.records = config.number(base::Var::trace_bytes) / sizeof(tap::TraceRecord);
  options.ordered = transport_->capabilities().ordered_messages;
  auto tracer = tap::Tracer::open(options);
  if (!tracer) return tracer.status();
  tracer_ = std::move(*tracer);
  return HEDDLE_DONE;
}

void Job::register_handler(std::uint32_t number, Handler handler) {
  const std::lock_guard lock(mutex_);
  if (probes() && handler.fn != nullptr) {
    try {
      probed_.push_front(handler);
      handler = probed(probed_.front());
    } catch (const std::bad_alloc&) {
      environment_.log.line(base::Level::warn, "handler %u is not probed: there is no memory", number);
    }
  }
  handlers_.set(number, handler);
}

void Job::report_failure(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  if (known_failed_[rank]) return;
  known_failed_[rank] = true;
  environment_.log.line(base::Level::info, "rank %u has failed or left; operations to it end with PEER_FAILED", rank);
}

std::string Job::tag_text(std::uint64_t tag, std::uint64_t mask) const {
  std::array<char, 160> text{};
  if (const heddle_name_tag name = name_tag_.load(std::memory_order_relaxed); name != nullptr) {
    name(tag, mask, text.data(), text.size());
    text.back() = '\0';
    return text.data();
  }
  constexpr std::uint64_t kShort = 1'000'000;  // longer ones are patterns of bits
  const auto wide = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  if (mask == 0) return "any tag";
  if (mask != ~std::uint64_t{0}) {
    std::snprintf(text.data(), text.size(), "tag 0x%llx under the mask 0x%llx", wide(tag), wide(mask));
  } else {
    std::snprintf(text.data(), text.size(), tag < kShort ? "tag %llu" : "tag 0x%llx", wide(tag));
  }
  return text.data();
}

bool Job::tells_edge() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(edge_told_, true);
}

void Job::report_drop(std::uint32_t worker, heddle_peer source, const char* why) {
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
