// The rules by which the blame at an end of the graph is given: the most specific one that fits.
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
  // Of an end that is one rank: that one and other ends of which the same can be said.
  std::vector<std::uint32_t> alike;
  std::vector<std::uint32_t> waiters;  // for any of these

  // The rank that waits for nobody; kNobody: there are several, or it waits.
  [[nodiscard]] std::uint32_t sink() const;
  [[nodiscard]] std::vector<const Edge*> edges() const;  // those of the focus, cycles first
};

using Rule = std::optional<Verdict> (*)(const Case&);

// In the order in which they are tried.
[[nodiscard]] std::span<const Rule> rules();

// Of verdict_progress.cpp: a handler that does not return; USER messages that nobody runs; a worker
// that nobody advances, which owes something, or to which something has come.
[[nodiscard]] std::optional<Verdict> held(const Case& about);
[[nodiscard]] std::optional<Verdict> tasks_not_run(const Case& about);
[[nodiscard]] std::optional<Verdict> unattended(const Case& about);
// Messages to a worker that their target has not opened; at the end, or where somebody waits for
// anybody.
[[nodiscard]] std::optional<Verdict> unopened(const Case& about);
// The same at ranks elsewhere, where somebody waits for it may be anybody.
[[nodiscard]] std::optional<Verdict> task_does_not_end(const Case& about);
[[nodiscard]] std::optional<Verdict> tasks_elsewhere(const Case& about);
[[nodiscard]] std::optional<Verdict> unhandled(const Case& about);
[[nodiscard]] std::optional<Verdict> untaken(const Case& about);
[[nodiscard]] std::optional<Verdict> unattended_alone(const Case& about);
// Of verdict_messages.cpp: a message with another tag, to or from another rank, than is awaited.
[[nodiscard]] std::optional<Verdict> wrong_message(const Case& about);
// Of verdict_teams.cpp: members at different calls; a rank that does not do what the others do.
[[nodiscard]] std::optional<Verdict> other_call(const Case& about);
[[nodiscard]] std::optional<Verdict> odd_one_out(const Case& about);

// ---- for rules
// Who waits for `to` for that cause, and the first such edge.
struct Waiting {
  std::vector<std::uint32_t> ranks;
  const Edge* first = nullptr;
};
[[nodiscard]] Waiting waiting_for(const Case& about, std::uint32_t to, Cause cause);
// " in MPI_Recv"; empty: it is not known in what
[[nodiscard]] std::string in_call(const Wait* wait);
// After a semicolon, unless it is empty.
[[nodiscard]] std::string and_waiting(const std::string& text);
[[nodiscard]] std::vector<std::uint32_t> listed(const std::set<std::uint32_t>& ranks);
[[nodiscard]] Verdict blame(const std::set<std::uint32_t>& culprits, std::string sentence);

}  // namespace heddle::diagnosis
