// Overlap of tagged messages with computation, as for PIOMan: harness/overlap.hpp says how.
#include "harness/overlap.hpp"

#include <cstdlib>
#include <string>

#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Session;

constexpr std::uint64_t kData = 1;
constexpr std::uint64_t kAnswer = 2;

class Endpoint {
 public:
  Endpoint(Job& job, heddle_worker worker, heddle_peer peer) : worker_(worker), peer_(peer) {
    must(heddle_counter_create(job.context(), nullptr, &sent_), "heddle_counter_create");
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() { must(heddle_counter_free(sent_), "heddle_counter_free"); }

  void begin_send(const void* data, std::uint64_t size) {
    const heddle_completion local{nullptr, nullptr, sent_, HEDDLE_WHEN_LOCAL};
    const heddle_status status = heddle_send(worker_, peer_, kData, data, size, &local);
    if (must(status, "heddle_send") == HEDDLE_POSTED) ++posted_;
  }
  void finish_send() { must(heddle_counter_wait(worker_, sent_, posted_, HEDDLE_FOREVER), "heddle_counter_wait"); }
  void begin_receive(void* data, std::uint64_t size) { post(kData, data, size); }
  void finish_receive() { must(heddle_recv_wait(worker_, &receive_, HEDDLE_FOREVER), "heddle_recv_wait"); }
  void answer() {
    const std::uint64_t word = 0;
    must(heddle_send(worker_, peer_, kAnswer, &word, sizeof word, nullptr), "heddle_send");
  }
  void await_answer() {
    std::uint64_t word = 0;
    post(kAnswer, &word, sizeof word);
    finish_receive();
  }
  void progress() { work::progress(worker_); }

 private:
  void post(std::uint64_t tag, void* data, std::uint64_t size) {
    const heddle_wanted wanted{peer_, tag, UINT64_MAX};
    must(heddle_recv(worker_, &wanted, data, size, &receive_, nullptr), "heddle_recv");
  }
  heddle_worker worker_;
  heddle_peer peer_;
  heddle_counter sent_{};
  heddle_receive receive_{};
  std::uint64_t posted_ = 0;
};

// "" without helpers; what stands behind the name of the figure. "_offload": small messages may be
// registered only.
std::string policy_suffix() {
  const char* set = std::getenv("HEDDLE_PROGRESS");
  const std::string policy = set != nullptr ? set : "";
  const char* small = std::getenv("HEDDLE_SMALL_OFFLOAD");
  const bool offloads = small != nullptr && std::string(small) != "off";
  return (policy.empty() || policy == "none" ? std::string() : "_" + policy) + (offloads ? "_offload" : "");
}

void measure(Session& session, Job& job, const ModeWorker* shared, const char* mode) {
  Endpoint endpoint(job, shared != nullptr ? shared->handle() : job.worker(0),
                    shared != nullptr ? shared->peer() : heddle_peer{job.peer(), 0});
  harness::measure_overlap(session, endpoint, [&](const char* op, std::uint64_t size) {
    harness::Figure figure = job.figure("overlap", op + policy_suffix(), "latency", size, 1);
    figure.key.sharing = mode;
    return figure;
  });
}

}  // namespace

void run_overlap(Session& session, Job& job) {
  if (!session.wants("overlap")) return;
  const auto& options = session.options();
  if (options.sharing.empty() || harness::wants_sharing(options, "exclusive"))
    measure(session, job, nullptr, "exclusive");
  for (const auto& [name, sharing] : kModes) {
    if (!harness::wants_sharing(options, name)) continue;
    session.cores().unpin();
    const ModeWorker shared(job, sharing);
    measure(session, job, &shared, name);
  }
}

}  // namespace heddle::bench::work
