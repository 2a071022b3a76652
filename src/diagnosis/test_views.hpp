// For tests: the views of a job, made tersely, and what is expected of the verdict.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis/verdict.hpp"

namespace heddle::diagnosis {

using Ranks = std::vector<std::uint32_t>;

inline constexpr std::uint64_t kSecond = 1'000'000'000;

// Views of a job, made tersely. All ranks compute until they are said to do something else.
class Job {
 public:
  explicit Job(std::uint32_t size) : views_(size) {
    for (RankView& view : views_) {
      view.pid = 17;
      view.snapshot.emplace().workers.push_back({0, true, false, 0, {}, {}});
      view.silent_ns = view.still_ns = 61 * kSecond;
    }
  }
  Job& waits(std::uint32_t rank, const char* call, std::vector<tap::Awaited> things, const char* awaited = "",
             std::uint32_t worker = 0) {
    views_[rank].snapshot->waits.push_back({call, awaited, 60 * kSecond, 1, worker, std::move(things), {}});
    return *this;
  }
  Job& recv(std::uint32_t rank, std::uint32_t from, const std::string& tag, const char* call = "MPI_Recv") {
    const std::string source = from == tap::kNobody ? "anybody" : "rank " + std::to_string(from);
    return waits(rank, call, {{tap::Cause::receive, from, tap::kNobody, 0, "receive", tag}},
                 (tag + " from " + source).c_str());
  }
  Job& send(std::uint32_t rank, std::uint32_t to, const std::string& tag, const char* call = "MPI_Ssend") {
    return waits(rank, call, {{tap::Cause::unreceived, to, 0, 100000, "tagged message", tag}});
  }
  Job& get(std::uint32_t rank, std::uint32_t from, std::uint32_t worker = 0) {
    return waits(rank, "heddle_get_wait", {{tap::Cause::answer, from, worker, 8, "get", ""}});
  }
  Job& word(std::uint32_t rank) {
    return waits(rank, "heddle_signal_wait", {{tap::Cause::word, tap::kNobody, tap::kNobody, 8, "word", ""}},
                 "the word at 0x7000 to be 1 or more");
  }
  Job& in(const Ranks& ranks, const tap::Step& step, const char* call = "heddle_barrier") {
    for (const std::uint32_t rank : ranks) {
      views_[rank].snapshot->waits.push_back({call, "", 60 * kSecond, 1, tap::kNobody, {}, step});
    }
    return *this;
  }
  Job& barrier(const Ranks& ranks, std::uint64_t number = 4, const char* operation = "barrier") {
    return in(ranks, {0, number, static_cast<std::uint32_t>(views_.size()), "the job", operation});
  }
  Job& server(const Ranks& ranks) {
    for (const std::uint32_t rank : ranks) recv(rank, tap::kNobody, "any tag", "heddle_recv_wait");
    return *this;
  }
  Job& kept(std::uint32_t rank, std::uint32_t from, const std::string& tag, std::uint64_t messages = 1) {
    worker(rank).kept.push_back({from, 0, messages, tag});
    return *this;
  }
  Job& is(std::uint32_t rank, Presence presence) {
    views_[rank].presence = presence;
    if (presence != Presence::here) views_[rank].snapshot.reset();
    return *this;
  }
  Job& polls(std::uint32_t rank, std::vector<tap::Awaited> under_way = {}) {
    views_[rank].silent_ns = 1000;
    worker(rank).under_way = std::move(under_way);
    return *this;
  }
  RankView& view(std::uint32_t rank) { return views_[rank]; }
  tap::WorkerState& worker(std::uint32_t rank) { return views_[rank].snapshot->workers.front(); }
  [[nodiscard]] Verdict verdict() const { return judge(views_); }

 private:
  std::vector<RankView> views_;
};

// The culprits, and words that the sentence has to have.
inline void expect(const Job& job, const Ranks& culprits, const std::vector<std::string>& words) {
  const Verdict verdict = job.verdict();
  EXPECT_EQ(verdict.culprits, culprits) << verdict.sentence;
  for (const std::string& word : words) EXPECT_NE(verdict.sentence.find(word), std::string::npos) << verdict.sentence;
  if (std::getenv("HEDDLE_SHOW_VERDICTS") != nullptr) std::printf("    %s\n", verdict.sentence.c_str());
}

inline tap::Step step(std::uint64_t team, std::uint64_t number, std::uint32_t size, const char* name,
                      const char* operation = "barrier") {
  return {team, number, size, name, operation};
}

}  // namespace heddle::diagnosis
