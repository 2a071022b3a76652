#include "worker/progress/policy.hpp"

#include <charconv>

namespace heddle::engine {

std::optional<Policy> policy_named(std::string_view text) {
  constexpr std::string_view kDedicated = "dedicated";
  if (text == "none") return Policy{PolicyKind::none, 0};
  if (text == "idle") return Policy{PolicyKind::idle, 0};
  if (text == "adaptive") return Policy{PolicyKind::adaptive, 1};
  if (text == kDedicated) return Policy{PolicyKind::dedicated, 1};
  if (!text.starts_with("dedicated:")) return std::nullopt;
  text.remove_prefix(kDedicated.size() + 1);
  std::uint32_t threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (threads < 1 || threads > Policy::kMostDedicated) return std::nullopt;
  return Policy{PolicyKind::dedicated, threads};
}

}  // namespace heddle::engine
