// A line of the PMI-1 protocol: "cmd=get_result rc=0 value=…". Nothing here trusts what the other
// end says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::bootstrap::pmi {

// Longer lines are refused. A value has at most 1024 bytes, and a line holds only one.
inline constexpr std::size_t kMaxLine = 4096;

class Line {
 public:
  // text: without the newline. Nothing: it is too long, has bytes that are not printable, or does
  // not begin with cmd=. Words without "=" are skipped, since some servers write messages with
  // blanks. If two fields have one name, the first counts.
  static std::optional<Line> parse(std::string_view text);

  [[nodiscard]] std::string_view command() const { return fields_.front().second; }
  // Nothing: there is no such field.
  [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const;
  // Nothing: there is no such field or it is not a number.
  [[nodiscard]] std::optional<long> number(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// True: the value of PMI_process_mapping, "(vector,(first node,nodes,ranks of each),…)", says that
// all ranks are on one node. False: they are not, or the text is not such a mapping.
bool maps_to_one_node(std::string_view mapping);

}  // namespace heddle::bootstrap::pmi
