// The words of a verdict: what ranks do, and which ranks wait for them, as clauses of a sentence.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "diagnosis/verdict_graph.hpp"

namespace heddle::diagnosis {

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
[[nodiscard]] std::string name_of(const Meeting& meeting);
[[nodiscard]] std::string team_of(const tap::Step& step);
// "the team of ranks 0-3, 5": these. Empty: it has no list of so many ranks.
[[nodiscard]] std::vector<std::uint32_t> ranks_in(const std::string& name, std::uint32_t size);
// "61 s"
[[nodiscard]] std::string seconds(std::uint64_t ns);

// One line for a terminal, not too long.
[[nodiscard]] std::string as_line(std::string text);

}  // namespace heddle::diagnosis
