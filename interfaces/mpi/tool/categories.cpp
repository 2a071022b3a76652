// Categories: the control variables are in one, the performance variables in the other.
#include <string_view>

#include <units/tool.hpp>
#include "mpi/tool/counts.hpp"
#include "mpi/tool/tool.hpp"

namespace heddle::mpi {
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

}  // namespace heddle::mpi
