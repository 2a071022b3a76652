// Control variables: HEDDLE_PROGRESS, and every other HEDDLE_ variable of the environment. The
// engine has no list of its settings in heddle.h, so those that the environment does not set are
// not among them; `heddle info settings` lists all.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include <units/tool.hpp>
#include "mpi/core/pool.hpp"
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
Pool<CvarHandle, 1U << 20> g_cvar_handles;

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

}  // namespace heddle::mpi
