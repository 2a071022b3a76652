// Events. There are no event types, so no index, registration or instance is valid. There is one
// source, the clock.
#include <ctime>

#include <units/tool.hpp>
#include "mpi/core/info.hpp"
#include "mpi/tool/tool.hpp"

namespace heddle::mpi {
namespace {

constexpr MPI_Count kTicksPerSecond = 1'000'000'000;

int no_index() {
  return tool::locked([] { return MPI_T_ERR_INVALID_INDEX; });
}
int no_handle() {
  return tool::locked([] { return MPI_T_ERR_INVALID_HANDLE; });
}

}  // namespace

int t_event_get_num(Call /*call*/, int* num_events) {
  return tool::locked([&] {
    if (num_events == nullptr) return MPI_T_ERR_INVALID;
    *num_events = 0;
    return MPI_SUCCESS;
  });
}

int t_event_get_index(Call /*call*/, const char* name, int* event_index) {
  return tool::locked(
      [&] { return name == nullptr || event_index == nullptr ? MPI_T_ERR_INVALID : MPI_T_ERR_INVALID_NAME; });
}

int t_event_get_info(Call /*call*/, int /*event_index*/, char* /*name*/, int* /*name_len*/, int* /*verbosity*/,
                     MPI_Datatype /*array_of_datatypes*/[], MPI_Aint /*array_of_displacements*/[],
                     int* /*num_elements*/, MPI_T_enum* /*enumtype*/, MPI_Info* /*info*/, char* /*desc*/,
                     int* /*desc_len*/, int* /*bind*/) {
  return no_index();
}

int t_event_handle_alloc(Call /*call*/, int /*event_index*/, void* /*obj_handle*/, MPI_Info /*info*/,
                         MPI_T_event_registration* /*event_registration*/) {
  return no_index();
}

int t_event_handle_free(Call /*call*/, MPI_T_event_registration /*event_registration*/, void* /*user_data*/,
                        MPI_T_event_free_cb_function /*free_cb_function*/) {
  return no_handle();
}

int t_event_handle_get_info(Call /*call*/, MPI_T_event_registration /*event_registration*/, MPI_Info* /*info_used*/) {
  return no_handle();
}

int t_event_handle_set_info(Call /*call*/, MPI_T_event_registration /*event_registration*/, MPI_Info /*info*/) {
  return no_handle();
}

int t_event_register_callback(Call /*call*/, MPI_T_event_registration /*event_registration*/,
                              MPI_T_cb_safety /*cb_safety*/, MPI_Info /*info*/, void* /*user_data*/,
                              MPI_T_event_cb_function /*event_cb_function*/) {
  return no_handle();
}

int t_event_callback_get_info(Call /*call*/, MPI_T_event_registration /*event_registration*/,
                              MPI_T_cb_safety /*cb_safety*/, MPI_Info* /*info_used*/) {
  return no_handle();
}

int t_event_callback_set_info(Call /*call*/, MPI_T_event_registration /*event_registration*/,
                              MPI_T_cb_safety /*cb_safety*/, MPI_Info /*info*/) {
  return no_handle();
}

int t_event_set_dropped_handler(Call /*call*/, MPI_T_event_registration /*event_registration*/,
                                MPI_T_event_dropped_cb_function /*dropped_cb_function*/) {
  return no_handle();
}

int t_event_copy(Call /*call*/, MPI_T_event_instance /*event_instance*/, void* /*buffer*/) {
  return no_handle();
}

int t_event_read(Call /*call*/, MPI_T_event_instance /*event_instance*/, int /*element_index*/, void* /*buffer*/) {
  return no_handle();
}

int t_event_get_source(Call /*call*/, MPI_T_event_instance /*event_instance*/, int* /*source_index*/) {
  return no_handle();
}

int t_event_get_timestamp(Call /*call*/, MPI_T_event_instance /*event_instance*/, MPI_Count* /*event_timestamp*/) {
  return no_handle();
}

// ---- sources ------------------------------------------------------------------------------------

int t_source_get_num(Call /*call*/, int* num_sources) {
  return tool::locked([&] {
    if (num_sources == nullptr) return MPI_T_ERR_INVALID;
    *num_sources = 1;
    return MPI_SUCCESS;
  });
}

int t_source_get_info(Call /*call*/, int source_index, char* name, int* name_len, char* desc, int* desc_len,
                      MPI_T_source_order* ordering, MPI_Count* ticks_per_second, MPI_Count* max_ticks, MPI_Info* info) {
  return tool::locked([&] {
    if (source_index != 0) return MPI_T_ERR_INVALID_INDEX;
    if (info != nullptr) {
      *info = new_handle(Info{});
      if (*info == MPI_INFO_NULL) return MPI_T_ERR_MEMORY;
    }
    tool::store_text("heddle_clock", name, name_len);
    tool::store_text("the clock of MPI_Wtime, in nanoseconds; no events come from it", desc, desc_len);
    tool::store(ordering, MPI_T_SOURCE_ORDERED);
    tool::store(ticks_per_second, kTicksPerSecond);
    tool::store(max_ticks, INT64_MAX);
    return MPI_SUCCESS;
  });
}

int t_source_get_timestamp(Call /*call*/, int source_index, MPI_Count* timestamp) {
  return tool::locked([&] {
    if (source_index != 0) return MPI_T_ERR_INVALID_INDEX;
    if (timestamp == nullptr) return MPI_T_ERR_INVALID;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    *timestamp = static_cast<MPI_Count>(now.tv_sec) * kTicksPerSecond + now.tv_nsec;
    return MPI_SUCCESS;
  });
}

}  // namespace heddle::mpi
