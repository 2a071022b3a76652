// The lower half of a context: the job that the process is a member of, the transport by which it
// reaches the other ranks, and its handlers. Workers, protocols and objects need to know no more;
// worker/context.hpp adds the rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "bootstrap/bootstrap.hpp"
#include "engine/handlers.hpp"
#include "queue/locks.hpp"
#include "tap/tracer.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Job {
 public:
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] std::uint32_t rank() const { return bootstrap_->rank(); }
  [[nodiscard]] std::uint32_t size() const { return bootstrap_->size(); }
  [[nodiscard]] base::Environment& environment() { return environment_; }
  [[nodiscard]] base::Clock& clock() { return clock_; }
  [[nodiscard]] bootstrap::Bootstrap& bootstrap() { return *bootstrap_; }
  [[nodiscard]] bool has_joined() const { return bootstrap_ != nullptr; }
  [[nodiscard]] transport::Transport& transport() const { return *transport_; }
  // Null: the job is not traced.
  [[nodiscard]] tap::Tracer* tracer() const { return tracer_.get(); }
  // Digest of the job's secret.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  // True: that rank has died or left, or the transport has disconnected from it for good (decision
  // 0039), so nothing comes from it any more. Calls that only keep ranks together (barriers,
  // exchanges, heddle_context_peer_status) ask the bootstrap, which may still reach the rank. Any
  // thread.
  [[nodiscard]] bool failed(std::uint32_t rank) const {
    return bootstrap_->failed(rank) || transport_->disconnected(rank);
  }
  // Logs each failed rank once. Any thread.
  void report_failure(std::uint32_t rank);
  // Logs the first arrival that was dropped; the others are only counted. Any thread.
  void report_drop(std::uint32_t worker, heddle_peer source, const char* why);
  // True once: Objects::tell_edge() tells of one word only. Any thread.
  [[nodiscard]] bool tells_edge();
  // The handler with this number, of either class; its function is null if there is none. Any
  // thread.
  [[nodiscard]] Handler handler(std::uint32_t number) const { return handlers_.find(number); }
  void register_handler(std::uint32_t number, Handler handler);
  // HEDDLE_PROBES: operations and handlers are probed.
  [[nodiscard]] bool probes() const { return environment_.config.flag(base::Var::probes); }
  // A tag of messages, for people: as the program words it, else "tag 7". Any thread. May throw
  // std::bad_alloc.
  [[nodiscard]] std::string tag_text(std::uint64_t tag, std::uint64_t mask) const;
  // heddle_context_name_tags. Null: none.
  void name_tags(heddle_name_tag function) { name_tag_.store(function, std::memory_order_relaxed); }

 protected:
  explicit Job(base::Environment environment);
  ~Job() = default;
  // Joins; the log names the rank from here on.
  base::Status join_job(const bootstrap::Options& options, base::Level level);
  void set_transport(std::unique_ptr<transport::Transport> transport) { transport_ = std::move(transport); }
  // HEDDLE_TRACE. The transport is there, and no worker yet.
  base::Status open_tracer();

 private:
  base::SystemClock clock_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<tap::Tracer> tracer_;
  std::unique_ptr<transport::Transport> transport_;
  std::uint64_t digest_ = 0;
  HandlerTable<wire::kHandlerNumbers> handlers_;    // set under mutex_
  std::atomic<heddle_name_tag> name_tag_{nullptr};  // relaxed: a function of the program's code
  // guards what follows; never held while a transport or bootstrap is called
  queue::FetchingMutex mutex_;
  std::vector<bool> known_failed_;
  bool drop_reported_ = false;
  bool edge_told_ = false;
  // The handlers that probes call, one for each registration: messages may still meet a handler
  // that was replaced.
  std::forward_list<Handler> probed_;
};

}  // namespace heddle::engine
