// MPI_T's beginning and end, and the functions of its enumerations. There are no enumerations.

#include "mpi/tool/tool.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <units/tool.hpp>

#include "mpi/core/info.hpp"

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

// Categories: the control variables are in one, the performance variables in the other.

namespace {

struct Category {
  std::string_view name;
  std::string_view description;
};
constexpr int kSettingsCategory = 0;
constexpr int kCountsCategory = 1;
constexpr Category kCategories[] = {{"heddle_settings", "settings: the HEDDLE_ variables of the environment"},
                                    {"heddle_counts", "what the engine has counted in this process"}};
constexpr int kNumberOfCategories = sizeof kCategories / sizeof kCategories[0];

bool is_category(int index) {
  return index >= 0 && index < kNumberOfCategories;
}

int number_of_cvars(int index) {
  return index == kSettingsCategory ? static_cast<int>(tool::g_tool.controls.size()) : 0;
}
int number_of_pvars(int index) {
  return index == kCountsCategory ? static_cast<int>(tool::number_of_counts()) : 0;
}

// The variables of a category are all of their kind.
template <class Number>
int list_variables(int cat_index, int len, int indices[], Number&& number) {
  return tool::locked([&] {
    if (!is_category(cat_index)) return MPI_T_ERR_INVALID_INDEX;
    if (len < 0 || (len > 0 && indices == nullptr)) return MPI_T_ERR_INVALID;
    const int all = number(cat_index);
    for (int i = 0; i < len && i < all; ++i) indices[i] = i;
    return MPI_SUCCESS;
  });
}

}  // namespace

int t_category_get_num(Call /*call*/, int* num_cat) {
  return tool::locked([&] {
    if (num_cat == nullptr) return MPI_T_ERR_INVALID;
    *num_cat = kNumberOfCategories;
    return MPI_SUCCESS;
  });
}

int t_category_get_info(Call /*call*/, int cat_index, char* name, int* name_len, char* desc, int* desc_len,
                        int* num_cvars, int* num_pvars, int* num_categories) {
  return tool::locked([&] {
    if (!is_category(cat_index)) return MPI_T_ERR_INVALID_INDEX;
    tool::store_text(kCategories[cat_index].name, name, name_len);
    tool::store_text(kCategories[cat_index].description, desc, desc_len);
    tool::store(num_cvars, number_of_cvars(cat_index));
    tool::store(num_pvars, number_of_pvars(cat_index));
    tool::store(num_categories, 0);
    return MPI_SUCCESS;
  });
}

int t_category_get_num_events(Call /*call*/, int cat_index, int* num_events) {
  return tool::locked([&] {
    if (!is_category(cat_index)) return MPI_T_ERR_INVALID_INDEX;
    if (num_events == nullptr) return MPI_T_ERR_INVALID;
    *num_events = 0;
    return MPI_SUCCESS;
  });
}

int t_category_get_index(Call /*call*/, const char* name, int* cat_index) {
  return tool::locked([&] {
    if (name == nullptr || cat_index == nullptr) return MPI_T_ERR_INVALID;
    for (int i = 0; i < kNumberOfCategories; ++i) {
      if (kCategories[i].name != name) continue;
      *cat_index = i;
      return MPI_SUCCESS;
    }
    return MPI_T_ERR_INVALID_NAME;
  });
}

int t_category_get_cvars(Call /*call*/, int cat_index, int len, int indices[]) {
  return list_variables(cat_index, len, indices, number_of_cvars);
}

int t_category_get_pvars(Call /*call*/, int cat_index, int len, int indices[]) {
  return list_variables(cat_index, len, indices, number_of_pvars);
}

int t_category_get_events(Call /*call*/, int cat_index, int len, int indices[]) {
  return list_variables(cat_index, len, indices, [](int) { return 0; });
}

int t_category_get_categories(Call /*call*/, int cat_index, int len, int indices[]) {
  return list_variables(cat_index, len, indices, [](int) { return 0; });
}

int t_category_changed(Call /*call*/, int* update_number) {
  return tool::locked([&] {
    if (update_number == nullptr) return MPI_T_ERR_INVALID;
    *update_number = tool::g_tool.changes;
    return MPI_SUCCESS;
  });
}

// Events. There are no event types, so no index, registration or instance is valid. There is one
// source, the clock.

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
