// Collective operations of Heddle's teams, in memory of the library or (--memory own) the
// program's.
#include <algorithm>
#include <string>
#include <vector>

#include "libraries/collective_calls.hpp"
#include "libraries/heddle.hpp"
#include "measure/collectives.hpp"

namespace heddle::bench::libraries {

namespace {

class Team {
 public:
  explicit Team(const harness::Options& options) : options_(options) {
    must(heddle_team_world(job_context, &team_), "heddle_team_world");
    must(heddle_team_rank(team_, &call_.rank), "heddle_team_rank");
    must(heddle_team_size(team_, &call_.size), "heddle_team_size");
    call_.team = team_;
    call_.options = &how_;
    call_.collective = &collective_;
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() { must(heddle_team_free(team_), "heddle_team_free"); }

  [[nodiscard]] static std::string name() { return transport_name(); }
  void barrier() { must(heddle_barrier(team_), "heddle_barrier"); }
  static void exchange(const void* mine, std::size_t bytes, void* all) {
    must(heddle_context_exchange(job_context, mine, bytes, all), "heddle_context_exchange");
  }
  [[nodiscard]] double* send() const { return call_.send; }
  [[nodiscard]] double* receive() const { return call_.receive; }
  [[nodiscard]] std::string algorithm() const { return algorithm_; }

  bool make(const std::string& operation, const std::string& form, std::size_t doubles) {
    operation_ = operation;
    algorithm_ = "none";
    call_.form = form == "blocking" ? Form::blocking : form == "persistent" ? Form::persistent : Form::nonblocking;
    call_.doubles = doubles;
    place(doubles * std::max(call_.size, 2U));
    if (call_.form != Form::persistent) return true;
    // For any other operation than the named one: the library chooses.
    const bool named = options_.algorithm.starts_with(operation + ".");
    how_ = {sizeof how_, named ? options_.algorithm.c_str() : nullptr, 0};
    call();
    const char* text = nullptr;
    must(heddle_collective_algorithm(collective_, &text), "heddle_collective_algorithm");
    algorithm_ = text;
    algorithm_.erase(0, algorithm_.find('.') + 1);
    return true;
  }
  void start() {
    if (call_.form == Form::persistent) must(heddle_collective_start(collective_), "heddle_collective_start");
    if (call_.form == Form::nonblocking) call();
  }
  void wait() {
    if (call_.form == Form::blocking) return call();
    must(heddle_collective_wait(collective_, HEDDLE_FOREVER), "heddle_collective_wait");
  }
  void drop() {
    if (call_.form == Form::persistent) must(heddle_collective_free(collective_), "heddle_collective_free");
    barrier();  // nobody puts there any more
    must(heddle_region_release(region_), "heddle_region_release");
    own_.clear();
  }

 private:
  void place(std::size_t doubles) {
    const std::size_t bytes = (2 * doubles + 16) * sizeof(double);
    const bool own = options_.memory == "own";
    must(heddle_region_alloc(job_context, own ? 64 : bytes, &region_), "heddle_region_alloc");
    void* address = nullptr;
    must(heddle_region_address(region_, &address, nullptr), "heddle_region_address");
    if (own) own_.resize(bytes / sizeof(double));
    call_.send = own ? own_.data() : static_cast<double*>(address);
    call_.receive = call_.send + doubles + 8;
  }
  void call() { must(call_collective(operation_, call_), operation_.c_str()); }

  const harness::Options& options_;
  heddle_team team_{};
  heddle_region region_{};
  std::vector<double> own_;
  std::string operation_;
  std::string algorithm_;
  CollectiveCall call_{};
  heddle_collective_options how_{};
  heddle_collective collective_{};
};

}  // namespace

void measure_collectives(harness::Session& session) {
  Team team(session.options());
  measure::CollectiveTimes(session, team).run();
}

}  // namespace heddle::bench::libraries
