#include "engine/findings.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace heddle::engine {

void Findings::say(const char* format, ...) {
  std::array<char, 512> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  lines.emplace_back(text.data());
}

void Findings::under_way(tap::Awaited&& awaited) {
  if (state.under_way.size() < tap::kMostListed) state.under_way.push_back(std::move(awaited));
}

void Findings::kept(std::uint32_t rank, std::uint32_t worker, std::uint64_t tag) {
  std::string text = tag_text(tag);
  const auto same = std::ranges::find_if(
      state.kept, [&](const tap::Kept& one) { return one.rank == rank && one.worker == worker && one.tag == text; });
  if (same != state.kept.end()) {
    ++same->messages;
  } else if (state.kept.size() < tap::kMostListed) {
    state.kept.push_back({rank, worker, 1, std::move(text)});
  }
}

}  // namespace heddle::engine
