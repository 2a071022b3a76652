#include "libraries/heddle.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "harness/record.hpp"
#include "libraries/collective_calls.hpp"
#include "measure/collectives.hpp"

namespace heddle::bench::libraries {

heddle_status must_fail(heddle_status status, const char* what) {
  char message[512];
  std::snprintf(message, sizeof message, "heddle bench: %s: %s: %s", what, heddle_status_name(status),
                heddle_last_error());
  heddle_context_abort(job_context, 1, message);
  std::fprintf(stderr, "%s\n", message);  // there was no job to abort yet
  std::_Exit(1);
}

Memory::Memory(std::uint64_t bytes, bool registered, bool adopt) {
  constexpr std::uint64_t kPage = 4096;
  std::uint32_t size = 0;
  must(heddle_context_size(job_context, &size), "heddle_context_size");
  must(heddle_region_alloc(job_context, bytes, &region_), "heddle_region_alloc");
  allocated_.resize(size);
  must(heddle_region_exchange(job_context, region_, allocated_.data()), "heddle_region_exchange");
  void* address = nullptr;
  must(heddle_region_address(region_, &address, nullptr), "heddle_region_address");
  own_ = static_cast<std::byte*>(address);
  if (!registered) return;
  const std::uint64_t data = (bytes - kDataAt + kPage - 1) / kPage * kPage;
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, data)));
  if (buffer_ == nullptr) must(HEDDLE_ERR_NO_MEMORY, "the buffers");
  std::memset(buffer_.get(), 0, data);
  const heddle_region_options kept{sizeof kept, adopt ? 1U : 0U, 0};
  must(heddle_region_register_with(job_context, buffer_.get(), data, &kept, &registered_region_),
       "heddle_region_register_with");
  registered_.resize(size);
  must(heddle_region_exchange(job_context, registered_region_, registered_.data()), "heddle_region_exchange");
}

Memory::~Memory() {
  must(heddle_context_barrier(job_context, {}, HEDDLE_FOREVER), "heddle_context_barrier");
  for (const auto* all : {&allocated_, &registered_}) {
    for (const heddle_remote_region remote : *all) {
      must(heddle_remote_region_release(remote), "heddle_remote_region_release");
    }
  }
  must(heddle_region_release(region_), "heddle_region_release");
  if (buffer_ != nullptr) must(heddle_region_release(registered_region_), "heddle_region_release");
}

Heddle::Heddle(Memory& memory, const SharingMode& mode, std::uint32_t lanes)
    : memory_(memory), mode_(mode), previous_(last_), lanes_(lanes), desks_(lanes) {
  last_ = this;
  for (std::uint32_t i = 0; i < lanes; ++i) {
    Lane& lane = lanes_[i];
    if (mode.own || i == 0) {
      heddle_worker_options how{};
      how.size = sizeof how;
      how.sharing = mode.sharing;
      must(heddle_worker_open(job_context, &how, &lane.worker), "heddle_worker_open");
      must(heddle_worker_index(lane.worker, &lane.index), "heddle_worker_index");
    } else {
      lane.worker = lanes_[0].worker;
      lane.index = lanes_[0].index;
    }
    heddle_counter_options how{};
    how.size = sizeof how;
    if (mode.sharing == HEDDLE_SHARING_EXCLUSIVE) how.worker = lane.worker;
    must(heddle_counter_create(job_context, &how, &lane.counter), "heddle_counter_create");
    desks_[i].answer.reset(static_cast<std::byte*>(std::calloc(1, measure::kMostBytes)));
    if (desks_[i].answer == nullptr) must(HEDDLE_ERR_NO_MEMORY, "the answers");
    std::memcpy(desks_[i].answer.get(), &i, sizeof i);
  }
  register_handlers(this);
  meet();
}

Heddle::~Heddle() {
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) quiet(i);
  meet();
  last_ = previous_;
  register_handlers(previous_);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    must(heddle_counter_free(lanes_[i].counter), "heddle_counter_free");
    if (mode_.own || i == 0) must(heddle_worker_close(lanes_[i].worker), "heddle_worker_close");
  }
}

void Heddle::register_handlers(Heddle* self) {
  const std::pair<std::uint32_t, heddle_am_handler> all[] = {
      {kOnCall, on_call}, {kOnReply, on_reply}, {kOnMessage, on_message}, {kOnAsk, on_ask}};
  for (const auto& [number, handler] : all) {
    must(heddle_am_register(job_context, number, self != nullptr ? handler : nullptr, self), "heddle_am_register");
  }
}

std::string transport_name() {
  harness::RecordKey key;
  key.transport = "shm";
  for (const char* name : {"HEDDLE_TRANSPORTS", "HEDDLE_TRANSPORT"}) {
    const char* set = std::getenv(name);
    if (set != nullptr && *set != '\0') key.transport = set;
  }
  const char* const nodes = std::getenv("HEDDLE_NODE_RANKS");
  // each rank is a node, and the library has chosen a network from those available: its name is not
  // known
  const bool several = nodes != nullptr && std::string_view(nodes) == "1";
  if (several && key.transport == "shm" && std::getenv("HEDDLE_TRANSPORT") == nullptr) key.transport = "network";
  return harness::is_heddle(key) ? key.transport : "heddle " + key.transport;
}

Identity Heddle::identity() const {
  const std::string name = transport_name();
  bool signals = name.find("ofi") != std::string::npos || name.find("verbs") != std::string::npos;
  if (signals && memory_.size() == 2) {  // unless both are on one node, with shm
    std::uint32_t rank = 0;
    int mapped = 0;
    must(heddle_context_rank(job_context, &rank), "heddle_context_rank");
    must(heddle_remote_mapped(memory_.at(1 - rank, 0), sizeof(std::uint64_t), &mapped), "heddle_remote_mapped");
    signals = mapped == 0;
  }
  return {name, mode_.name, kind_, mode_.own, &mode_ != &kExclusive, registered_, signals};
}

void Heddle::send_late(std::uint32_t lane) {
  Desk& desk = desks_[lane];
  std::vector<Late> waiting;
  {
    const std::scoped_lock lock(desk.mutex);
    waiting.swap(desk.waiting);
    desk.late.store(false, std::memory_order_relaxed);
  }
  for (const Late& one : waiting) must(heddle_am(lanes_[lane].worker, one.to, &one.message, nullptr), "heddle_am");
}

void Heddle::answer(Desk& desk, const heddle_am_arrival& to, const heddle_am_message& message) {
  const heddle_status status = heddle_try_am(to.worker, to.source, &message, nullptr);
  if (must(status, "heddle_try_am") != HEDDLE_AGAIN) return;
  const std::scoped_lock lock(desk.mutex);
  desk.waiting.push_back({to.source, message});
  desk.late.store(true, std::memory_order_release);
}

Heddle::Desk& Heddle::desk_of(const heddle_am_arrival* arrival, void* self) {
  std::uint64_t lane = 0;
  std::memcpy(&lane, arrival->payload, sizeof lane);
  return static_cast<Heddle*>(self)->desks_[lane];
}

void Heddle::on_message(const heddle_am_arrival* arrival, void* self) {
  count(desk_of(arrival, self).arrived);
}

// The answer's source does not change: the asker asks again only when it has the answer.
void Heddle::on_ask(const heddle_am_arrival* arrival, void* self) {
  Desk& desk = desk_of(arrival, self);
  answer(desk, *arrival, {kOnMessage, 0, nullptr, desk.answer.get(), arrival->payload_bytes});
  count(desk.arrived);
}

void Heddle::on_call(const heddle_am_arrival* arrival, void* self) {
  Heddle& me = *static_cast<Heddle*>(self);
  ServiceCall call;
  std::memcpy(&call, arrival->payload, sizeof call);
  call.number = measure::answer_to(call.number);
  Desk& desk = me.desks_[call.lane];
  ServiceCall& reply = desk.replies[call.slot];
  reply = call;
  answer(desk, *arrival, {kOnReply, 0, nullptr, &reply, sizeof reply});
  count(desk.called);
}

void Heddle::on_reply(const heddle_am_arrival* arrival, void* self) {
  ServiceCall reply;
  std::memcpy(&reply, arrival->payload, sizeof reply);
  Desk& desk = static_cast<Heddle*>(self)->desks_[reply.lane];
  desk.came[desk.replied.load(std::memory_order_relaxed) % measure::kMostOutstanding] = reply;
  count(desk.replied);
}

// Collective operations of Heddle's teams, in memory of the library or (--memory own) the
// program's.

namespace {

class Team {
 public:
  explicit Team(const harness::BenchOptions& options) : options_(options) {
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

  const harness::BenchOptions& options_;
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

void measure_collectives(harness::BenchSession& session) {
  Team team(session.options());
  measure::CollectiveTimes(session, team).run();
}

}  // namespace heddle::bench::libraries
