// The rules that assign the blame at an end of the graph. The most specific rule that fits decides.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "diagnosis/verdict_graph.hpp"
#include "diagnosis/verdict_words.hpp"

namespace heddle::diagnosis {

struct Case {
  const Graph& graph;
  const Words& words;
  const End& end;
  Focus focus;
  // For an end that is one rank: this rank, and other such ends with the same description.
  std::vector<std::uint32_t> alike;
  std::vector<std::uint32_t> waiters;  // for any of these

  // The rank of the end if it waits for no rank; kNobody: the end has several ranks, or its rank
  // waits.
  [[nodiscard]] std::uint32_t sink() const;
  [[nodiscard]] std::vector<const Edge*> edges() const;  // those of the focus, cycles first
};

using Rule = std::optional<Verdict> (*)(const Case&);

// In the order in which they are tried.
[[nodiscard]] std::span<const Rule> rules();

// In verdict_progress.cpp: a handler that does not return; USER messages that no thread runs; a
// worker that no thread advances and that owes something, or has arrivals.
[[nodiscard]] std::optional<Verdict> held(const Case& about);
[[nodiscard]] std::optional<Verdict> tasks_not_run(const Case& about);
[[nodiscard]] std::optional<Verdict> unattended(const Case& about);
// Messages to a worker that their target has not opened, at the end; or anywhere, if a rank waits
// for any rank.
[[nodiscard]] std::optional<Verdict> unopened(const Case& about);
// The same at ranks outside the end, if a rank waits for something that any rank may have to do.
[[nodiscard]] std::optional<Verdict> task_does_not_end(const Case& about);
[[nodiscard]] std::optional<Verdict> tasks_elsewhere(const Case& about);
[[nodiscard]] std::optional<Verdict> unhandled(const Case& about);
[[nodiscard]] std::optional<Verdict> untaken(const Case& about);
[[nodiscard]] std::optional<Verdict> unattended_alone(const Case& about);
// In verdict_messages.cpp: a message with another tag, receiver or sender than the awaited one.
[[nodiscard]] std::optional<Verdict> wrong_message(const Case& about);
// In verdict_teams.cpp: members at different calls; a rank that does not do what the others do.
[[nodiscard]] std::optional<Verdict> other_call(const Case& about);
[[nodiscard]] std::optional<Verdict> odd_one_out(const Case& about);

// ---- for rules
// The ranks that wait for `to` for that cause, and the first such edge.
struct Waiting {
  std::vector<std::uint32_t> ranks;
  const Edge* first = nullptr;
};
[[nodiscard]] Waiting waiting_for(const Case& about, std::uint32_t to, tap::Cause cause);
// " in MPI_Recv"; empty: it is not known in what
[[nodiscard]] std::string in_call(const tap::Wait* wait);
// After a semicolon, unless it is empty.
[[nodiscard]] std::string and_waiting(const std::string& text);
[[nodiscard]] std::vector<std::uint32_t> listed(const std::set<std::uint32_t>& ranks);
[[nodiscard]] Verdict blame(const std::set<std::uint32_t>& culprits, std::string sentence);

}  // namespace heddle::diagnosis
