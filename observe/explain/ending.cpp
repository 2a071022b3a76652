#include "observe/explain/ending.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "diagnosis/verdict_graph.hpp"

namespace heddle::observe::explain {
namespace {

// A trace does not name collectives. Members of one have to give it the same name.
constexpr const char* kCollective = "collective call";

tap::Wait wait_of(const Story& story, const WaitStory& told) {
  tap::Wait wait;
  wait.call = told.call;
  wait.waited_ns = static_cast<std::uint64_t>(told.length());
  if (told.worker != tap::kNoTraceWorker) wait.worker = told.worker;
  for (const AwaitedThing& awaited : told.awaited) {
    // The things that a wait in a collective names have no number.
    if (diagnosis::duty_of(awaited.cause) == diagnosis::Duty::come && awaited.number != 0) {
      wait.step = step_of(story, awaited);
      continue;
    }
    // Which workers were open, and whether anybody looked at them at last, is not in a trace.
    tap::Awaited& thing = wait.things.emplace_back();
    thing.cause = awaited.cause;
    thing.rank = awaited.rank;
  }
  return wait;
}

// The last call of each team that each rank came to, unless the rank waits there.
void add_passed(const Story& story, std::vector<diagnosis::RankView>& views) {
  for (const auto& [team, calls] : latest_calls(story)) {
    for (const auto& [rank, number] : calls) {
      if (rank >= views.size()) continue;
      tap::Snapshot& snapshot = *views[rank].snapshot;
      const bool waits =
          std::ranges::any_of(snapshot.waits, [&, its_team = team, its_number = number](const tap::Wait& wait) {
            return wait.step.has_value() && wait.step->team == its_team && wait.step->number == its_number;
          });
      if (!waits) snapshot.passed.push_back({team, number});
    }
  }
}

}  // namespace

tap::Step step_of(const Story& story, const AwaitedThing& awaited) {
  tap::Step step;
  step.team = awaited.team;
  step.number = awaited.number;
  const auto members = story.members.find({awaited.team, awaited.number});
  step.size = members == story.members.end() ? story.size : members->second;
  step.operation = kCollective;
  return step;
}

std::map<std::uint64_t, diagnosis::LatestCalls> latest_calls(const Story& story) {
  std::map<std::uint64_t, diagnosis::LatestCalls> latest;
  for (const auto& [call, entries] : story.entries) {
    for (const CollectiveEntry& entry : entries) {
      std::uint64_t& number = latest[call.first][story.ranks[entry.rank].number];
      number = std::max(number, call.second);
    }
  }
  return latest;
}

std::vector<diagnosis::RankView> views_at_end(const Story& story) {
  std::vector<diagnosis::RankView> views(story.size);
  for (const Rank& rank : story.ranks) {
    if (rank.number >= views.size()) continue;
    diagnosis::RankView& view = views[rank.number];
    view.snapshot.emplace();
    // A rank that polls in vain notes nothing: one that does not wait computes, as far as is known.
    view.silent_ns = view.still_ns = ~std::uint64_t{0};
  }
  for (const WaitStory& told : story.waits) {
    const std::uint32_t number = story.ranks[told.rank].number;
    if (!told.ended && number < views.size()) views[number].snapshot->waits.push_back(wait_of(story, told));
  }
  add_passed(story, views);
  return views;
}

Ending ending_of(const Story& story) {
  const std::vector<diagnosis::RankView> views = views_at_end(story);
  const diagnosis::Graph graph(views);
  Ending ending;
  ending.able = graph.able();
  ending.culprits = diagnosis::judge(views).culprits;
  std::set<std::uint32_t> found(ending.culprits.begin(), ending.culprits.end());
  std::vector<std::uint32_t> open = ending.culprits;
  while (!open.empty()) {
    const std::uint32_t rank = open.back();
    open.pop_back();
    for (const std::uint32_t waiter : graph.waiters(rank)) {
      if (found.insert(waiter).second) open.push_back(waiter);
    }
  }
  std::ranges::set_difference(found, ending.culprits, std::back_inserter(ending.behind));
  return ending;
}

}  // namespace heddle::observe::explain
