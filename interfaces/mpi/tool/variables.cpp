// Control variables: HEDDLE_PROGRESS, and every other HEDDLE_ variable of the environment. The
// engine has no list of its settings in heddle.h, so those that the environment does not set are
// not among them; `heddle info settings` lists all.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <units/tool.hpp>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/core/progress.hpp"
#include "mpi/tool/tool.hpp"

namespace heddle::mpi {

namespace {

using tool::g_tool;

constexpr std::string_view kVariablePrefix = "HEDDLE_";

// Settings whose default is this library's own; they are variables also when the environment does
// not set them.
struct Own {
  const char* name;
  const char* otherwise;
  const char* description;
};
constexpr Own kOwn[] = {
    {"HEDDLE_PROGRESS", "adaptive", "who makes progress besides the program's calls"},
};

struct CvarHandle {
  std::size_t number;
};
ObjectPool<CvarHandle, 1U << 20> g_cvar_handles;

bool is_known_cvar(std::string_view name) {
  return std::any_of(g_tool.controls.begin(), g_tool.controls.end(),
                     [&](const tool::Control& each) { return each.name == name; });
}

bool is_cvar(int index) {
  return index >= 0 && static_cast<std::size_t>(index) < g_tool.controls.size();
}
const tool::Control& cvar_at(int index) {
  return g_tool.controls[static_cast<std::size_t>(index)];
}

}  // namespace

void tool::read_controls() {
  const std::size_t before = g_tool.controls.size();
  for (const Own& own : kOwn) {
    if (is_known_cvar(own.name)) continue;
    const char* const value = std::getenv(own.name);
    g_tool.controls.push_back({own.name, value != nullptr ? value : own.otherwise, own.description});
  }
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view text = *each;
    const std::size_t end = text.find('=');
    if (!text.starts_with(kVariablePrefix) || end == std::string_view::npos || is_known_cvar(text.substr(0, end)))
      continue;
    g_tool.controls.push_back(
        {std::string(text.substr(0, end)), std::string(text.substr(end + 1)),
         "from the environment of this process; `heddle info settings` describes the engine's settings"});
  }
  if (g_tool.controls.size() != before) ++g_tool.changes;
}

int t_cvar_get_num(Call /*call*/, int* num_cvar) {
  return tool::locked([&] {
    if (num_cvar == nullptr) return MPI_T_ERR_INVALID;
    *num_cvar = static_cast<int>(g_tool.controls.size());
    return MPI_SUCCESS;
  });
}

int t_cvar_get_info(Call /*call*/, int cvar_index, char* name, int* name_len, int* verbosity, MPI_Datatype* datatype,
                    MPI_T_enum* enumtype, char* desc, int* desc_len, int* bind, int* scope) {
  return tool::locked([&] {
    if (!is_cvar(cvar_index)) return MPI_T_ERR_INVALID_INDEX;
    const tool::Control& control = cvar_at(cvar_index);
    tool::store_text(control.name, name, name_len);
    tool::store_text(control.description, desc, desc_len);
    tool::store(verbosity, MPI_T_VERBOSITY_USER_BASIC);
    tool::store(datatype, MPI_CHAR);
    tool::store(enumtype, MPI_T_ENUM_NULL);
    tool::store(bind, MPI_T_BIND_NO_OBJECT);
    tool::store(scope, MPI_T_SCOPE_CONSTANT);
    return MPI_SUCCESS;
  });
}

int t_cvar_get_index(Call /*call*/, const char* name, int* cvar_index) {
  return tool::locked([&] {
    if (name == nullptr || cvar_index == nullptr) return MPI_T_ERR_INVALID;
    for (std::size_t i = 0; i < g_tool.controls.size(); ++i) {
      if (g_tool.controls[i].name != name) continue;
      *cvar_index = static_cast<int>(i);
      return MPI_SUCCESS;
    }
    return MPI_T_ERR_INVALID_NAME;
  });
}

int t_cvar_handle_alloc(Call /*call*/, int cvar_index, void* /*obj_handle*/, MPI_T_cvar_handle* handle, int* count) {
  return tool::locked([&] {
    if (!is_cvar(cvar_index)) return MPI_T_ERR_INVALID_INDEX;
    if (handle == nullptr || count == nullptr) return MPI_T_ERR_INVALID;
    CvarHandle* const made = g_cvar_handles.take(CvarHandle{static_cast<std::size_t>(cvar_index)});
    if (made == nullptr) return MPI_T_ERR_OUT_OF_HANDLES;
    *handle = reinterpret_cast<MPI_T_cvar_handle>(made);
    *count = static_cast<int>(cvar_at(cvar_index).value.size()) + 1;  // with its zero
    return MPI_SUCCESS;
  });
}

int t_cvar_handle_free(Call /*call*/, MPI_T_cvar_handle* handle) {
  return tool::locked([&] {
    if (handle == nullptr) return MPI_T_ERR_INVALID;
    CvarHandle* const which = g_cvar_handles.find(*handle);
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;
    g_cvar_handles.give_back(which);
    *handle = MPI_T_CVAR_HANDLE_NULL;
    return MPI_SUCCESS;
  });
}

int t_cvar_read(Call /*call*/, MPI_T_cvar_handle handle, void* buf) {
  return tool::locked([&] {
    const CvarHandle* const which = g_cvar_handles.find(handle);
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;
    if (buf == nullptr) return MPI_T_ERR_INVALID;
    const std::string& value = g_tool.controls[which->number].value;
    std::memcpy(buf, value.c_str(), value.size() + 1);
    return MPI_SUCCESS;
  });
}

int t_cvar_write(Call /*call*/, MPI_T_cvar_handle handle, const void* buf) {
  return tool::locked([&] {
    if (g_cvar_handles.find(handle) == nullptr) return MPI_T_ERR_INVALID_HANDLE;
    return buf == nullptr ? MPI_T_ERR_INVALID : MPI_T_ERR_CVAR_SET_NEVER;
  });
}

// Performance variables: counts of the engine. They run from the opening of the workers on and
// cannot be written, so that starting, stopping and resetting them are errors.

namespace {

struct Count {
  const char* name;
  std::uint64_t heddle_worker_stats::* field;
  const char* description;
};
using Stats = heddle_worker_stats;
constexpr std::array kCounts{
    Count{"heddle_sends", &Stats::sends, "tagged messages sent: the program's and the library's own"},
    Count{"heddle_receives", &Stats::receives, "receives that got a message"},
    Count{"heddle_kept", &Stats::kept, "messages that came before their receive was posted"},
    Count{"heddle_taken", &Stats::taken, "long messages sent that took a receive posted before"},
    Count{"heddle_messages", &Stats::messages, "active messages sent"},
    Count{"heddle_received", &Stats::received, "active messages whose handler ran"},
    Count{"heddle_puts", &Stats::puts, "puts: stores to memory of other processes"},
    Count{"heddle_gets", &Stats::gets, "gets: loads from memory of other processes"},
    Count{"heddle_atomics", &Stats::atomics, "atomic operations on memory of other processes"},
    Count{"heddle_direct", &Stats::direct, "of these operations, those done as loads and stores"},
    Count{"heddle_bytes", &Stats::bytes, "bytes of data of all operations"},
    Count{"heddle_again", &Stats::again, "operations that found no resource and were tried again"},
    Count{"heddle_polls", &Stats::polls, "calls of progress"},
    Count{"heddle_registered", &Stats::registered, "messages that were left to a progress thread"},
    Count{"heddle_helped", &Stats::helped, "of these, those that a progress thread has sent"},
    Count{"heddle_dropped", &Stats::dropped, "arrivals that were dropped"},
    Count{"heddle_failed", &Stats::failed, "operations that completed with an error"},
};
// The counts of workers that have closed.
std::array<std::uint64_t, kCounts.size()> g_kept{};

std::uint64_t counted_now(const Count& count) {
  std::uint64_t sum = 0;
  for (const Lane* lane : g_job.lanes) {
    Stats stats{};
    stats.size = sizeof stats;
    if (heddle_worker_stats_read(lane->worker, &stats) == HEDDLE_DONE) sum += stats.*count.field;
  }
  return sum;
}

struct PvarSession;
struct PvarHandle {
  PvarSession* session;
  std::size_t number;
};
struct PvarSession {
  std::vector<PvarHandle*> handles;
};
ObjectPool<PvarSession, 1U << 16> g_pvar_sessions;
ObjectPool<PvarHandle, 1U << 20> g_pvar_handles;

bool is_pvar(int index) {
  return index >= 0 && static_cast<std::size_t>(index) < kCounts.size();
}

// MPI_SUCCESS: `handle` is one of `session`, or all of its handles (*which is null then).
int find_pvar(MPI_T_pvar_session session, MPI_T_pvar_handle handle, PvarHandle** which) {
  *which = nullptr;
  const PvarSession* const of = g_pvar_sessions.find(session);
  if (of == nullptr) return MPI_T_ERR_INVALID_SESSION;
  if (handle == MPI_T_PVAR_ALL_HANDLES) return MPI_SUCCESS;
  *which = g_pvar_handles.find(handle);
  if (*which == nullptr) return MPI_T_ERR_INVALID_HANDLE;
  return (*which)->session == of ? MPI_SUCCESS : MPI_T_ERR_INVALID_SESSION;
}

// All handles of a session: variables that do not allow it are passed over. One handle: the error.
int never(MPI_T_pvar_session session, MPI_T_pvar_handle handle, int code) {
  return tool::locked([&] {
    PvarHandle* which = nullptr;
    if (const int found = find_pvar(session, handle, &which); found != MPI_SUCCESS) return found;
    return which == nullptr ? MPI_SUCCESS : code;
  });
}

}  // namespace

std::size_t tool::number_of_counts() {
  return kCounts.size();
}

void tool::keep_counts() {
  const std::scoped_lock lock(g_tool.mutex);
  for (std::size_t i = 0; i < kCounts.size(); ++i) g_kept[i] += counted_now(kCounts[i]);
}

int t_pvar_get_num(Call /*call*/, int* num_pvar) {
  return tool::locked([&] {
    if (num_pvar == nullptr) return MPI_T_ERR_INVALID;
    *num_pvar = static_cast<int>(kCounts.size());
    return MPI_SUCCESS;
  });
}

int t_pvar_get_info(Call /*call*/, int pvar_index, char* name, int* name_len, int* verbosity, int* var_class,
                    MPI_Datatype* datatype, MPI_T_enum* enumtype, char* desc, int* desc_len, int* bind, int* readonly,
                    int* continuous, int* atomic) {
  return tool::locked([&] {
    if (!is_pvar(pvar_index)) return MPI_T_ERR_INVALID_INDEX;
    const Count& count = kCounts[static_cast<std::size_t>(pvar_index)];
    tool::store_text(count.name, name, name_len);
    tool::store_text(count.description, desc, desc_len);
    tool::store(verbosity, MPI_T_VERBOSITY_USER_DETAIL);
    tool::store(var_class, MPI_T_PVAR_CLASS_COUNTER);
    tool::store(datatype, MPI_UNSIGNED_LONG_LONG);
    tool::store(enumtype, MPI_T_ENUM_NULL);
    tool::store(bind, MPI_T_BIND_NO_OBJECT);
    tool::store(readonly, 1);
    tool::store(continuous, 1);
    tool::store(atomic, 0);
    return MPI_SUCCESS;
  });
}

int t_pvar_get_index(Call /*call*/, const char* name, int var_class, int* pvar_index) {
  return tool::locked([&] {
    if (name == nullptr || pvar_index == nullptr) return MPI_T_ERR_INVALID;
    if (var_class != MPI_T_PVAR_CLASS_COUNTER) return MPI_T_ERR_INVALID_NAME;
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      if (std::string_view(kCounts[i].name) != name) continue;
      *pvar_index = static_cast<int>(i);
      return MPI_SUCCESS;
    }
    return MPI_T_ERR_INVALID_NAME;
  });
}

int t_pvar_session_create(Call /*call*/, MPI_T_pvar_session* session) {
  return tool::locked([&] {
    if (session == nullptr) return MPI_T_ERR_INVALID;
    PvarSession* const made = g_pvar_sessions.take();
    if (made == nullptr) return MPI_T_ERR_OUT_OF_SESSIONS;
    *session = reinterpret_cast<MPI_T_pvar_session>(made);
    return MPI_SUCCESS;
  });
}

int t_pvar_session_free(Call /*call*/, MPI_T_pvar_session* session) {
  return tool::locked([&] {
    if (session == nullptr) return MPI_T_ERR_INVALID;
    PvarSession* const which = g_pvar_sessions.find(*session);
    if (which == nullptr) return MPI_T_ERR_INVALID_SESSION;
    for (PvarHandle* handle : which->handles) g_pvar_handles.give_back(handle);
    g_pvar_sessions.give_back(which);
    *session = MPI_T_PVAR_SESSION_NULL;
    return MPI_SUCCESS;
  });
}

int t_pvar_handle_alloc(Call /*call*/, MPI_T_pvar_session session, int pvar_index, void* /*obj_handle*/,
                        MPI_T_pvar_handle* handle, int* count) {
  return tool::locked([&] {
    PvarSession* const which = g_pvar_sessions.find(session);
    if (which == nullptr) return MPI_T_ERR_INVALID_SESSION;
    if (!is_pvar(pvar_index)) return MPI_T_ERR_INVALID_INDEX;
    if (handle == nullptr || count == nullptr) return MPI_T_ERR_INVALID;
    which->handles.reserve(which->handles.size() + 1);
    PvarHandle* const made = g_pvar_handles.take(PvarHandle{which, static_cast<std::size_t>(pvar_index)});
    if (made == nullptr) return MPI_T_ERR_OUT_OF_HANDLES;
    which->handles.push_back(made);
    *handle = reinterpret_cast<MPI_T_pvar_handle>(made);
    *count = 1;
    return MPI_SUCCESS;
  });
}

int t_pvar_handle_free(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle* handle) {
  return tool::locked([&]() -> int {
    if (handle == nullptr) return MPI_T_ERR_INVALID;
    PvarHandle* which = nullptr;
    if (const int code = find_pvar(session, *handle, &which); code != MPI_SUCCESS) return code;
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;  // MPI_T_PVAR_ALL_HANDLES
    std::erase(which->session->handles, which);
    g_pvar_handles.give_back(which);
    *handle = MPI_T_PVAR_HANDLE_NULL;
    return MPI_SUCCESS;
  });
}

int t_pvar_start(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
  return never(session, handle, MPI_T_ERR_PVAR_NO_STARTSTOP);
}

int t_pvar_stop(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
  return never(session, handle, MPI_T_ERR_PVAR_NO_STARTSTOP);
}

int t_pvar_reset(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
  return never(session, handle, MPI_T_ERR_PVAR_NO_WRITE);
}

int t_pvar_read(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle, void* buf) {
  return tool::locked([&]() -> int {
    PvarHandle* which = nullptr;
    if (const int code = find_pvar(session, handle, &which); code != MPI_SUCCESS) return code;
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;  // one value cannot be that of all
    if (buf == nullptr) return MPI_T_ERR_INVALID;
    const unsigned long long value = g_kept[which->number] + counted_now(kCounts[which->number]);
    std::memcpy(buf, &value, sizeof value);
    return MPI_SUCCESS;
  });
}

int t_pvar_readreset(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle, void* buf) {
  return tool::locked([&]() -> int {
    PvarHandle* which = nullptr;
    if (const int code = find_pvar(session, handle, &which); code != MPI_SUCCESS) return code;
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;
    return buf == nullptr ? MPI_T_ERR_INVALID : MPI_T_ERR_PVAR_NO_WRITE;
  });
}

int t_pvar_write(Call /*call*/, MPI_T_pvar_session session, MPI_T_pvar_handle handle, const void* buf) {
  return tool::locked([&]() -> int {
    PvarHandle* which = nullptr;
    if (const int code = find_pvar(session, handle, &which); code != MPI_SUCCESS) return code;
    if (which == nullptr) return MPI_T_ERR_INVALID_HANDLE;
    return buf == nullptr ? MPI_T_ERR_INVALID : MPI_T_ERR_PVAR_NO_WRITE;
  });
}

}  // namespace heddle::mpi
