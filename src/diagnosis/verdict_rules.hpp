// The rules of the judge, which assign the blame at an end of the graph, and the clauses of its
// sentences. The most specific rule that fits decides.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "diagnosis/owed.hpp"
#include "diagnosis/verdict_graph.hpp"

namespace heddle::diagnosis {

// The words of a verdict: what ranks do, and which ranks wait for them, as clauses of a sentence.
class Words {
 public:
  Words(const Graph& graph, const char* rank_word) : graph_(graph), rank_word_(rank_word) {}

  // "rank 2", "ranks 0-3 and 5"
  [[nodiscard]] std::string who(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] std::string who(std::uint32_t rank) const { return who(std::vector{rank}); }
  // "waits in MPI_Recv for tag 7 from rank 0", "is in barrier #4 of MPI_COMM_WORLD", "has not
  // called the library for 61 s"
  [[nodiscard]] std::string does(std::uint32_t rank, bool plural = false) const;
  // "is in barrier #4 of the job, as are ranks 1 and 3". `ranks` do the same.
  [[nodiscard]] std::string does_with_others(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] std::string does_with_others(std::uint32_t rank) const { return does_with_others(std::vector{rank}); }
  // Null `wait`: it polls.
  [[nodiscard]] std::string waits(std::uint32_t rank, const tap::Wait* wait, bool plural = false) const;
  // What the rank waits for: "tag 7 from rank 0"; empty: it is not known.
  [[nodiscard]] std::string awaited(std::uint32_t rank, const tap::Wait* wait) const;
  [[nodiscard]] std::string thing(const tap::Awaited& thing, std::uint32_t waiter) const;
  // What the edge is for, in brackets; empty if the text of its wait names the rank already.
  [[nodiscard]] std::string not_named(const Edge& edge) const;
  // "ranks 0, 1 and 3 wait for it in barrier #4 of MPI_COMM_WORLD, and rank 4 for these". Empty:
  // nobody does.
  [[nodiscard]] std::string waiting_for(const std::vector<std::uint32_t>& ranks,
                                        const std::vector<std::uint32_t>& waiters) const;
  // "ranks 0 and 2 wait in shmem_wait_until for …": those that wait loosely, by their calls, but
  // for some. Empty: there are none.
  [[nodiscard]] std::string loose_ranks(const std::set<std::uint32_t>& but = {}) const;

 private:
  const Graph& graph_;
  const char* rank_word_;
};

// "barrier #4 of MPI_COMM_WORLD"
[[nodiscard]] std::string name_of(const CollectiveMeeting& meeting);
[[nodiscard]] std::string team_of(const tap::Step& step);
// "61 s"
[[nodiscard]] std::string seconds(std::uint64_t ns);

// One line for a terminal, not too long.
[[nodiscard]] std::string as_line(std::string text);

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
// In verdict_matching.cpp: a message with another tag, receiver or sender than the awaited one.
[[nodiscard]] std::optional<Verdict> wrong_message(const Case& about);
// Also there: members at different calls; a rank that does not do what the others do.
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
