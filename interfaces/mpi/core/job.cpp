#include "mpi/core/job.hpp"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <units/setup.hpp>

#include "mpi/communicators/comm.hpp"
#include "mpi/core/check.hpp"
#include "mpi/core/progress.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/rma/locks.hpp"
#include "mpi/tool/tool.hpp"

namespace heddle::mpi {

MpiJob g_job;

namespace {

std::mutex g_job_mutex;  // guards joining and leaving
int g_users = 0;         // of the job: MPI_Init, sessions

// Lanes of a process with MPI_THREAD_MULTIPLE: one for each of its cores, as far as known.
constexpr std::uint32_t kLeastLanes = 4;
constexpr std::uint32_t kMostLanes = 16;

// What each rank tells the others when it joins.
struct Announcement {
  std::uint32_t lanes;
  std::uint16_t no_any_tag;
  std::uint16_t checks;
  std::uint64_t node;
};

std::uint64_t name_of_node() {
  utsname names{};
  ::uname(&names);
  return std::hash<std::string_view>()(names.nodename);
}

// Threads of the library make progress too, unless the user chose otherwise.
bool has_helpers() {
  const char* const progress = std::getenv("HEDDLE_PROGRESS");
  return progress == nullptr || std::string_view(progress) != "none";
}

// The texts that mean true to the engine. The engine has already rejected invalid texts.
bool environment_asserts_no_any_tag() {
  const char* const text = std::getenv("HEDDLE_MPI_NO_ANY_TAG");
  const std::string_view value = text == nullptr ? "" : text;
  return value == "1" || value == "yes" || value == "on" || value == "true";
}

int open_lanes(int level) {
  const std::uint32_t cores = std::clamp(std::thread::hardware_concurrency(), kLeastLanes, kMostLanes);
  const std::uint32_t wanted = level == MPI_THREAD_MULTIPLE ? cores : 1;
  heddle_worker_options options{};
  options.size = sizeof options;
  // When helpers run too, a single thread has a shorter path into an automatic worker than into an
  // exclusive one. Peers may need any of the workers while a thread waits on one of them.
  options.attends = wanted > 1 ? 1 : 0;
  options.sharing = level == MPI_THREAD_MULTIPLE || has_helpers() ? HEDDLE_SHARING_AUTO : HEDDLE_SHARING_EXCLUSIVE;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    auto* const lane = new Lane;
    lane->number = i;
    if (const int code = code_of(heddle_worker_open(g_job.context, &options, &lane->worker)); code != MPI_SUCCESS) {
      delete lane;
      return code;
    }
    g_job.lanes.push_back(lane);
  }
  return MPI_SUCCESS;
}

int learn_of_others(bool checks_wanted) {
  const Announcement mine{static_cast<std::uint32_t>(g_job.lanes.size()), std::uint16_t{g_job.no_any_tag},
                          std::uint16_t{checks_wanted}, name_of_node()};
  std::vector<Announcement> all(g_job.size);
  const heddle_status status = heddle_context_exchange(g_job.context, &mine, sizeof mine, all.data());
  if (status < 0) return error_of_status(status);
  std::vector<std::uint64_t> names;
  bool checks = true;
  for (const Announcement& one : all) {
    g_job.lanes_of.push_back(one.lanes);
    g_job.no_any_tag_of.push_back(one.no_any_tag != 0);
    checks = checks && one.checks != 0;
    std::size_t node = 0;
    while (node < names.size() && names[node] != one.node) ++node;
    if (node == names.size()) names.push_back(one.node);
    g_job.nodes.push_back(static_cast<std::uint32_t>(node));
  }
  begin_checks(checks);
  return MPI_SUCCESS;
}

int join_context(int level) {
  bool checks_wanted = false;
  if (const int code = read_checks(&checks_wanted); code != MPI_SUCCESS) return code;
  heddle_context_options options{};
  options.size = sizeof options;
  // Programs send many messages before anybody receives them, and MPI has no means to make them
  // wait.
  static_cast<void>(::setenv("HEDDLE_TAG_CREDIT_BYTES", "64M", 0));
  // Progress threads answer peers' messages while this rank computes, unless the user chose
  // otherwise.
  if (std::getenv("HEDDLE_PROGRESS") == nullptr) options.progress = "adaptive";
  if (const int code = code_of(heddle_context_join(&options, &g_job.context)); code != MPI_SUCCESS) return code;
  tell_calls(g_job.context);
  static_cast<void>(heddle_context_name_tags(g_job.context, &name_tag));
  static_cast<void>(heddle_context_list_held(g_job.context, &list_held_locks));
  static_cast<void>(heddle_context_rank(g_job.context, &g_job.rank));
  static_cast<void>(heddle_context_size(g_job.context, &g_job.size));
  g_job.thread_level = level;
  g_job.main_thread = std::this_thread::get_id();
  if (const int code = open_lanes(level); code != MPI_SUCCESS) return code;
  g_job.no_any_tag = environment_asserts_no_any_tag() && g_job.lanes.size() > 1;
  if (const int code = learn_of_others(checks_wanted); code != MPI_SUCCESS) return code;
  if (const int code = code_of(heddle_team_world(g_job.context, &g_job.world)); code != MPI_SUCCESS) return code;
  g_job.joined = true;
  return open_base();
}

int leave_context() {
  close_base();
  tool::keep_counts();
  g_job.joined = false;
  tell_calls({});
  const heddle_status status = heddle_context_leave(g_job.context);
  for (Lane* lane : g_job.lanes) delete lane;
  g_job.lanes.clear();
  g_job.lanes_of.clear();
  g_job.no_any_tag_of.clear();
  g_job.nodes.clear();
  g_job.context = {};
  return code_of(status);
}

// Processes that used only sessions leave the job when they end.
void leave_at_exit(int exit_code, void* /*unused*/) {
  if (exit_code == 0 && g_job.joined && g_job.phase.load() != MpiJob::Phase::running)
    static_cast<void>(leave_context());
}

}  // namespace

int check_running() {
  if (g_job.joined) [[likely]]
    return MPI_SUCCESS;
  if (g_job.phase.load() == MpiJob::Phase::finalized) return error(MPI_ERR_OTHER, "called after MPI_Finalize");
  return error(MPI_ERR_OTHER, "called before MPI_Init");
}

int join_job(int level) {
  const std::scoped_lock lock(g_job_mutex);
  if (g_job.joined) return MPI_SUCCESS;
  if (g_job.context.id != 0 || g_job.phase.load() == MpiJob::Phase::finalized)
    return error(MPI_ERR_OTHER, "the process has left its job, and cannot join it again");
  if (::on_exit(leave_at_exit, nullptr) != 0) return no_memory_for("an exit handler");
  return join_context(level);
}

void retain_job() {
  const std::scoped_lock lock(g_job_mutex);
  ++g_users;
}

int release_job() {
  const std::scoped_lock lock(g_job_mutex);
  if (--g_users > 0 || !g_job.joined) return MPI_SUCCESS;
  // Sessions alone may come and go: the job is left at the end of the process, or with
  // MPI_Finalize.
  if (g_job.phase.load() == MpiJob::Phase::before) return MPI_SUCCESS;
  return leave_context();
}

// ---- the world model ----------------------------------------------------------------------------

namespace {

int begin_world(int required, int* provided) {
  if (g_job.phase.load() == MpiJob::Phase::running) return error(MPI_ERR_OTHER, "called a second time");
  if (g_job.phase.load() == MpiJob::Phase::finalized) return error(MPI_ERR_OTHER, "called after MPI_Finalize");
  if (required < MPI_THREAD_SINGLE || required > MPI_THREAD_MULTIPLE)
    return error(MPI_ERR_ARG, "required %d is no thread level", required);
  int level = MPI_THREAD_SINGLE;
  for (const int one : {MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE})
    if (required >= one) level = one;
  if (const int code = join_job(level); code != MPI_SUCCESS) return code;
  if (const int code = open_world(); code != MPI_SUCCESS) return code;
  retain_job();
  g_job.phase.store(MpiJob::Phase::running);
  if (provided != nullptr) *provided = g_job.thread_level;
  // No rank begins before its peers have their workers.
  return code_of(heddle_context_barrier(g_job.context, g_job.lanes[0]->worker, HEDDLE_FOREVER));
}

// A session that is open may have objects of its own.
bool is_last_user() {
  const std::scoped_lock lock(g_job_mutex);
  return g_users == 1;
}

int end_world() {
  if (const int code = delete_attributes(MPI_COMM_SELF, &g_self->attributes); code != MPI_SUCCESS) return code;
  flush_buffers();
  // All ranks come here when they have received their messages. What they have sent must leave
  // first.
  for (Lane* lane : g_job.lanes) wait_until(*lane, [&] { return lane->waiting.load() == 0; });
  const heddle_status status = heddle_context_barrier(g_job.context, g_job.lanes[0]->worker, HEDDLE_FOREVER);
  if (status < 0 && status != HEDDLE_ERR_PEER_FAILED) return error_of_status(status);
  close_world();
  if (g_checks && is_last_user()) tell_leaks();
  g_job.phase.store(MpiJob::Phase::finalized);
  return release_job();
}

}  // namespace

int init_thread(Call call, int* /*argc*/, char*** /*argv*/, int required, int* provided) {
  return told(call, begin_world(required, provided));
}

int init(Call call, int* argc, char*** argv) {
  return init_thread(call, argc, argv, MPI_THREAD_SINGLE, nullptr);
}

int finalize(Call call) {
  if (g_job.phase.load() != MpiJob::Phase::running) {
    const bool before = g_job.phase.load() == MpiJob::Phase::before;
    return report(call, error(MPI_ERR_OTHER, before ? "called before MPI_Init" : "called a second time"));
  }
  return told(call, end_world());
}

void tell_calls(heddle_context context) {
  using Hook = void(heddle_context, decltype(&heddle_trace_begin), decltype(&heddle_trace_end));
  auto* const hook = reinterpret_cast<Hook*>(::dlsym(RTLD_DEFAULT, "heddle_mpi_calls"));
  if (hook != nullptr) hook(context, &heddle_trace_begin, &heddle_trace_end);
}

}  // namespace heddle::mpi
