// Runs the conformance suite under all settings: those of the folders, and those that follow from
// the table of transports.
#include <algorithm>

#include "transport/test/conformance_settings.hpp"

namespace heddle::transport::conformance {
namespace {

std::vector<std::vector<Setting> (*)()>& given() {
  static std::vector<std::vector<Setting> (*)()> all;
  return all;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto& of_folder : given()) {
    const std::vector<Setting> some = of_folder();
    all.insert(all.end(), some.begin(), some.end());
  }
  std::vector<Setting> more;
  for (const TransportRow& entry : table()) {
    const std::string name = entry.name;
    if (std::any_of(all.begin(), all.end(), [&](const Setting& one) { return one.transport == name; })) continue;
    more.push_back({name, name, {}});
    more.push_back({"fault " + name + " everything", "fault+" + name, kEverything});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, testing::ValuesIn(settings()),
                         [](const auto& setting) { return name_of(setting.param); });

}  // namespace

Given::Given(std::vector<Setting> (*settings)()) {
  given().push_back(settings);
}

}  // namespace heddle::transport::conformance
