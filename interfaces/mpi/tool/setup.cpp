// MPI_T's beginning and end, and the functions of its enumerations. There are no enumerations.
#include <algorithm>
#include <cstring>
#include <new>

#include <units/tool.hpp>
#include "mpi/tool/tool.hpp"

namespace heddle::mpi {
namespace tool {

State g_tool;

void store_text(std::string_view text, char* out, int* length) {
  if (length == nullptr) return;
  if (out != nullptr && *length > 0) {
    const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(*length) - 1);
    std::memcpy(out, text.data(), bytes);
    out[bytes] = '\0';
  }
  *length = static_cast<int>(text.size()) + 1;
}

}  // namespace tool

int t_init_thread(Call /*call*/, int required, int* provided) {
  if (provided == nullptr) return MPI_T_ERR_INVALID;
  if (required != MPI_THREAD_SINGLE && required != MPI_THREAD_FUNNELED && required != MPI_THREAD_SERIALIZED &&
      required != MPI_THREAD_MULTIPLE) {
    return MPI_T_ERR_INVALID;
  }
  const std::scoped_lock lock(tool::g_tool.mutex);
  try {
    tool::read_controls();
  } catch (const std::bad_alloc&) {
    return MPI_T_ERR_MEMORY;
  }
  ++tool::g_tool.users;
  *provided = MPI_THREAD_MULTIPLE;  // for any level asked for, since all functions lock
  return MPI_SUCCESS;
}

int t_finalize(Call /*call*/) {
  return tool::locked([] {
    --tool::g_tool.users;
    return MPI_SUCCESS;
  });
}

int t_enum_get_info(Call /*call*/, MPI_T_enum /*enumtype*/, int* /*num*/, char* /*name*/, int* /*name_len*/) {
  return tool::locked([] { return MPI_T_ERR_INVALID_HANDLE; });
}

int t_enum_get_item(Call /*call*/, MPI_T_enum /*enumtype*/, int /*indx*/, int* /*value*/, char* /*name*/,
                    int* /*name_len*/) {
  return tool::locked([] { return MPI_T_ERR_INVALID_HANDLE; });
}

}  // namespace heddle::mpi
