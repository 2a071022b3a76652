#include "diagnosis/owed.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

namespace heddle::diagnosis {
namespace {

using Ranks = std::vector<std::uint32_t>;

// A name that does not list them all may belong to any of the ranks that were seen there.
Ranks members_of(const tap::Step& step, const LatestCalls& latest, std::uint32_t ranks) {
  if (step.team == 0 || step.size >= ranks) {
    Ranks all(ranks);
    std::iota(all.begin(), all.end(), 0U);
    return all;
  }
  Ranks named = ranks_in(step.team_name, step.size);
  if (!named.empty() && named.back() < ranks) return named;
  Ranks seen;
  for (const auto& [rank, number] : latest) seen.push_back(rank);
  return seen;
}

}  // namespace

Duty duty_of(tap::Cause cause) {
  switch (cause) {
    case tap::Cause::answer:
    case tap::Cause::room:
      return Duty::look;
    case tap::Cause::receive:
      return Duty::send;
    case tap::Cause::unreceived:
      return Duty::receive;
    case tap::Cause::credit:
      return Duty::take;
    case tap::Cause::tasks:
      return Duty::run_tasks;
    case tap::Cause::collective:
      return Duty::come;
    case tap::Cause::word:
      return Duty::write;
    case tap::Cause::lock:
      return Duty::release;
    case tap::Cause::partition:
      return Duty::do_part;
    case tap::Cause::own:
      return Duty::leave_to_others;
    case tap::Cause::unknown:
      break;
  }
  return Duty::unknown;
}

bool is_by_receiving(Duty duty) {
  return duty == Duty::receive || duty == Duty::take;
}

bool is_by_looking(Duty duty) {
  return duty == Duty::look || duty == Duty::receive;
}

bool is_standing(Duty duty) {
  return duty == Duty::come || duty == Duty::release || duty == Duty::leave_to_others || duty == Duty::take ||
         duty == Duty::run_tasks;
}

Debtor debtor_of(const tap::Awaited& thing, std::uint32_t waiter, std::uint32_t ranks,
                 std::span<const std::uint32_t> able) {
  const Duty duty = duty_of(thing.cause);
  const bool of_itself = thing.rank == waiter;
  // A word that names the waiting rank is a word of that rank's memory, which others write.
  if (duty == Duty::leave_to_others || (of_itself && duty != Duty::write)) return {waiter, true, true};
  if (!of_itself && thing.rank < ranks) return {thing.rank, false, true};
  if (able.size() != 2 || std::ranges::find(able, waiter) == able.end()) return {};
  return {able[able[0] == waiter ? 1 : 0], false, false};
}

bool has_passed(const LatestCalls& latest, std::uint32_t rank, std::uint64_t number) {
  const auto found = latest.find(rank);
  return found != latest.end() && found->second > number;
}

Absentees absentees_of(const tap::Step& step, std::span<const std::uint32_t> come, const LatestCalls& latest,
                       std::uint32_t ranks) {
  const Ranks all = members_of(step, latest, ranks);
  Absentees absent;
  absent.whole = all.size() >= std::min(step.size, ranks);
  for (const std::uint32_t rank : all) {
    const bool has_come = std::ranges::binary_search(come, rank);
    if (!has_come && !has_passed(latest, rank, step.number)) absent.ranks.push_back(rank);
  }
  return absent;
}

Ranks ranks_in(const std::string& name, std::uint32_t size) {
  Ranks found;
  std::size_t at = name.find("ranks ");
  if (at == std::string::npos) return found;
  at += 6;
  const char* end = name.data() + name.size();
  for (const char* place = name.data() + at; place < end;) {
    std::uint32_t first = 0;
    auto [after, fault] = std::from_chars(place, end, first);
    if (fault != std::errc()) break;
    std::uint32_t last = first;
    if (after < end && *after == '-') {
      const auto range = std::from_chars(after + 1, end, last);
      if (range.ec != std::errc()) break;
      after = range.ptr;
    }
    if (last < first || last - first >= size) return {};
    for (std::uint32_t rank = first; rank <= last; ++rank) found.push_back(rank);
    place = after;
    for (const char* gap : {", ", " and "}) {
      const std::string_view text(gap);
      if (std::string_view(place, static_cast<std::size_t>(end - place)).starts_with(text)) place += text.size();
    }
  }
  // The text may have been cut where it was made.
  std::sort(found.begin(), found.end());
  return found.size() == size ? found : Ranks{};
}

std::string lock_of(const std::string& holder) {
  return holder.empty() ? "a lock" : "a lock that " + holder + " holds";
}

}  // namespace heddle::diagnosis
