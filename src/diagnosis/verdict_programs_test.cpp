// Random programs with one fault each, run by a small model of a job until nothing moves. The
// verdict has to name the rank at fault, and at most two ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/random.hpp"
#include "diagnosis/verdict.hpp"

namespace heddle::diagnosis::verdict_programs_test {
namespace {

using base::Random;

enum class Op { send, ssend, recv, meet, get, lock, unlock, signal, word, compute, poll, stop, die, leave };

struct Act {
  Op op = Op::leave;
  std::uint32_t other = 0;  // a rank; of meet: the team
  int tag = 0;
  const char* name = "";  // of meet
};

using Program = std::vector<Act>;

struct Message {
  std::uint32_t from, to;
  int tag;
  bool waits;
  bool taken = false;
};

// The job: each rank's program and how far it is.
class Model {
 public:
  explicit Model(std::vector<Program> programs)
      : programs_(std::move(programs)), at_(programs_.size()), sent_(programs_.size()), calls_(programs_.size()) {}

  void run() {
    for (moved_ = true; moved_;) {
      moved_ = false;
      for (std::uint32_t rank = 0; rank < programs_.size(); ++rank) {
        while (at_[rank] < programs_[rank].size() && step(rank)) moved_ = true;
      }
    }
  }
  [[nodiscard]] bool hangs() const {
    for (std::uint32_t rank = 0; rank < programs_.size(); ++rank) {
      if (act(rank).op != Op::leave) return true;
    }
    return false;
  }
  // `servers`: each rank has a thread that waits for any message.
  [[nodiscard]] std::vector<RankView> views(bool servers) const;

 private:
  [[nodiscard]] const Act& act(std::uint32_t rank) const { return programs_[rank][at_[rank]]; }
  [[nodiscard]] std::vector<std::uint32_t> members(std::uint32_t team) const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < programs_.size(); ++rank) {
      if (team == 0 || rank % 2 == team - 1) ranks.push_back(rank);
    }
    return ranks;
  }
  [[nodiscard]] bool advanced(std::uint32_t rank) const {
    return act(rank).op != Op::compute && act(rank).op != Op::stop && act(rank).op != Op::die;
  }
  bool step(std::uint32_t rank);
  bool meet(std::uint32_t rank);
  bool take(std::uint32_t rank, const Act& act);
  [[nodiscard]] std::vector<tap::Awaited> things(std::uint32_t rank) const;

  bool moved_ = false;
  std::vector<Program> programs_;
  std::vector<std::size_t> at_;
  std::vector<bool> sent_;                           // the ssend at which the rank is
  std::vector<std::map<std::uint32_t, int>> calls_;  // by team: those that have ended
  std::vector<Message> messages_;
  std::map<std::uint32_t, std::uint32_t> locked_;  // by lock: who
  std::map<std::uint32_t, int> signals_;
};

bool Model::take(std::uint32_t rank, const Act& act) {
  for (Message& message : messages_) {
    if (message.taken || message.to != rank || message.tag != act.tag) continue;
    if (act.other != tap::kNobody && message.from != act.other) continue;
    message.taken = true;
    return true;
  }
  return false;
}

// A broadcast waits for its root only; the others wait for all members.
bool Model::meet(std::uint32_t rank) {
  const Act& mine = act(rank);
  const int number = calls_[rank][mine.other];
  const bool broadcast = std::string(mine.name) == "broadcast";
  const std::vector<std::uint32_t> all = members(mine.other);
  for (const std::uint32_t member : all) {
    if (member == rank || (broadcast && (member != all.front() || rank == all.front()))) continue;
    const int calls = calls_[member].contains(mine.other) ? calls_[member].at(mine.other) : 0;
    const Act& its = act(member);
    const bool there = its.op == Op::meet && its.other == mine.other && std::string(its.name) == mine.name;
    if (calls < number || (calls == number && !there)) return false;
  }
  // Those that are there leave together: a member that has gone on counts as there.
  ++calls_[rank][mine.other];
  return true;
}

bool Model::step(std::uint32_t rank) {
  const Act& mine = act(rank);
  bool done = false;
  switch (mine.op) {
    case Op::send:
    case Op::ssend:
      if (!sent_[rank]) {
        messages_.push_back({rank, mine.other, mine.tag, mine.op == Op::ssend});
        moved_ = sent_[rank] = true;
      }
      done = mine.op == Op::send || std::none_of(messages_.begin(), messages_.end(), [&](const Message& each) {
               return each.from == rank && each.waits && !each.taken;
             });
      if (done) sent_[rank] = false;
      break;
    case Op::recv:
      done = take(rank, mine);
      break;
    case Op::meet:
      done = meet(rank);
      break;
    case Op::get:
      done = advanced(mine.other);
      break;
    case Op::lock:
      done = !locked_.contains(mine.other);
      if (done) locked_[mine.other] = rank;
      break;
    case Op::unlock:
      locked_.erase(mine.other);
      done = true;
      break;
    case Op::signal:
      ++signals_[mine.other];
      done = true;
      break;
    case Op::word:
      done = signals_[rank] > 0;
      if (done) --signals_[rank];
      break;
    default:
      return false;
  }
  if (done) ++at_[rank];
  return done;
}

std::vector<tap::Awaited> Model::things(std::uint32_t rank) const {
  const Act& mine = act(rank);
  const std::string tag = "tag " + std::to_string(mine.tag);
  switch (mine.op) {
    case Op::recv:
      return {{tap::Cause::receive, mine.other, tap::kNobody, 0, "receive", tag}};
    case Op::ssend:
      return {{tap::Cause::unreceived, mine.other, 0, 100, "tagged message", tag}};
    case Op::get:
      return {{tap::Cause::answer, mine.other, 0, 8, "get", ""}};
    case Op::lock:
      return {{tap::Cause::lock, locked_.at(mine.other), tap::kNobody, 0, "lock", ""}};
    case Op::word:
      return {{tap::Cause::word, tap::kNobody, tap::kNobody, 8, "word", ""}};
    default:
      return {};
  }
}

std::vector<RankView> Model::views(bool servers) const {
  static const std::map<Op, const char*> kCalls = {{Op::ssend, "MPI_Ssend"},           {Op::recv, "MPI_Recv"},
                                                   {Op::meet, "heddle_barrier"},       {Op::get, "heddle_get_wait"},
                                                   {Op::lock, "shmem_set_lock"},       {Op::word, "heddle_signal_wait"},
                                                   {Op::leave, "heddle_context_leave"}};
  std::vector<RankView> views(programs_.size());
  for (std::uint32_t rank = 0; rank < views.size(); ++rank) {
    RankView& view = views[rank];
    const Act& mine = act(rank);
    view.pid = 100 + rank;
    view.silent_ns = mine.op == Op::poll ? 1000 : 60'000'000'000;
    if (mine.op == Op::stop || mine.op == Op::die) {
      view.presence = mine.op == Op::stop ? Presence::stopped : Presence::dead;
      continue;
    }
    tap::WorkerState worker{0, true, false, 0, {}, {}};
    for (const Message& message : messages_) {
      const bool here = message.to == rank && !message.taken && !message.waits;
      if (here) worker.kept.push_back({message.from, 0, 1, "tag " + std::to_string(message.tag)});
    }
    view.snapshot.emplace().workers.push_back(worker);
    if (servers) {
      const tap::Awaited any{tap::Cause::receive, tap::kNobody, tap::kNobody, 0, "receive", "any tag"};
      view.snapshot->waits.push_back({"heddle_recv_wait", "", 90'000'000'000, 1, 0, {any}, {}});
    }
    if (!kCalls.contains(mine.op)) continue;
    tap::Wait wait{kCalls.at(mine.op), "", 60'000'000'000, 1, 0, things(rank), {}};
    if (mine.op == Op::meet) {
      const auto size = static_cast<std::uint32_t>(members(mine.other).size());
      const std::uint64_t number = 1U + (calls_[rank].contains(mine.other) ? calls_[rank].at(mine.other) : 0U);
      wait.step =
          tap::Step{mine.other, number, size, "the team of ranks " + tap::list_of(members(mine.other)), mine.name};
    }
    view.snapshot->waits.push_back(wait);
  }
  return views;
}

// ---- programs

constexpr const char* kMeetings[] = {"barrier", "allreduce", "broadcast"};

// One thing that some ranks do together, at the ends of their programs.
void add_action(Random& random, std::vector<Program>& programs) {
  const auto size = static_cast<std::uint32_t>(programs.size());
  const auto one = static_cast<std::uint32_t>(random.below(size));
  const auto other = static_cast<std::uint32_t>((one + 1 + random.below(size - 1)) % size);
  const int tag = static_cast<int>(random.below(3));
  switch (random.below(10)) {
    case 0:
    case 1: {  // a message
      programs[one].push_back({random.below(2) == 0 ? Op::send : Op::ssend, other, tag, ""});
      programs[other].push_back({Op::recv, one, tag, ""});
      break;
    }
    case 2:
    case 3: {
      const std::uint32_t team = size >= 4 ? static_cast<std::uint32_t>(random.below(3)) : 0;
      const char* name = kMeetings[random.below(3)];
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        if (team == 0 || rank % 2 == team - 1) programs[rank].push_back({Op::meet, team, 0, name});
      }
      break;
    }
    case 4:  // a ring
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        programs[rank].push_back({Op::send, (rank + 1) % size, tag, ""});
        programs[rank].push_back({Op::recv, (rank + size - 1) % size, tag, ""});
      }
      break;
    case 5:
      programs[one].push_back({Op::get, other, 0, ""});
      break;
    case 6:
      for (const std::uint32_t rank : {one, other}) {
        programs[rank].push_back({Op::lock, 1, 0, ""});
        programs[rank].push_back({Op::unlock, 1, 0, ""});
      }
      break;
    case 7:  // rank 0 takes what comes
      for (std::uint32_t rank = 1; rank < size; ++rank) {
        programs[rank].push_back({Op::send, 0, 4, ""});
        programs[0].push_back({Op::recv, tap::kNobody, 4, ""});
      }
      break;
    case 8:
      programs[one].push_back({Op::signal, other, 0, ""});
      programs[other].push_back({Op::word, 0, 0, ""});
      break;
    default:
      for (std::uint32_t rank = 1; rank < size; ++rank) {  // to rank 0
        programs[rank].push_back({random.below(2) == 0 ? Op::send : Op::ssend, 0, tag, ""});
        programs[0].push_back({Op::recv, rank, tag, ""});
      }
  }
}

constexpr const char* kFaults[] = {
    "leaves a call out", "wrong tag", "wrong rank",  "other collective", "one call too many", "computes", "polls",
    "stopped",           "died",      "leaves early"};

// Puts the fault into the program of `rank` at `at`; false: that fault does not fit there.
bool plant(Random& random, Program& program, std::size_t at, std::uint32_t rank, std::uint32_t size,
           std::size_t fault) {
  Act& act = program[at];
  const bool message = act.op == Op::send || act.op == Op::ssend || act.op == Op::recv;
  const auto place = program.begin() + static_cast<std::ptrdiff_t>(at);
  constexpr Op kEnds[] = {Op::compute, Op::poll, Op::stop, Op::die};
  switch (fault) {
    case 0:
      if (act.op == Op::leave || act.op == Op::get || act.op == Op::lock) return false;
      program.erase(place);
      return true;
    case 1:
      act.tag += 5;
      return message;
    case 2: {
      if (!message || size < 3) return false;
      const std::uint32_t right = act.other;
      while (act.other == right || act.other == rank) act.other = static_cast<std::uint32_t>(random.below(size));
      return true;
    }
    case 3:
      if (act.op != Op::meet) return false;
      act.name = std::string(act.name) == "barrier" ? "allreduce" : "barrier";
      return true;
    case 4:
      program.insert(place, {Op::meet, 0, 0, "barrier"});
      return true;
    case 9:
      program.erase(place, program.end() - 1);
      return program.size() > 1;
    default:
      program.insert(place, {kEnds[fault - 5], 0, 0, ""});
      return true;
  }
}

struct Tally {
  int all = 0;
  int right = 0;
};

TEST(Programs, TheRankAtFaultIsNamed) {
  std::map<std::string, Tally> by_fault;
  Tally total;
  const char* shown = std::getenv("HEDDLE_SHOW_VERDICTS");
  for (std::uint64_t seed = 0; total.all < 1000; ++seed) {
    Random random(seed);
    const auto size = static_cast<std::uint32_t>(2 + random.below(7));
    std::vector<Program> programs(size);
    for (std::uint64_t left = 3 + random.below(12); left > 0; --left) add_action(random, programs);
    for (Program& program : programs) program.push_back({Op::leave, 0, 0, ""});
    Model sound(programs);
    sound.run();
    if (sound.hangs()) continue;  // a receive from anybody took another's message

    const auto culprit = static_cast<std::uint32_t>(random.below(size));
    const std::size_t fault = random.below(std::size(kFaults));
    Program& program = programs[culprit];
    if (!plant(random, program, random.below(program.size()), culprit, size, fault)) continue;
    Model model(programs);
    model.run();
    if (!model.hangs()) continue;
    const Verdict verdict = judge(model.views(random.below(2) == 0));
    const bool right = verdict.culprits.size() <= 2 &&
                       std::find(verdict.culprits.begin(), verdict.culprits.end(), culprit) != verdict.culprits.end();
    for (Tally* tally : {&total, &by_fault[kFaults[fault]]}) {
      ++tally->all;
      tally->right += right ? 1 : 0;
    }
    if (shown != nullptr && !right) {
      std::printf("%llu: rank %u of %u %s:\n    %s\n", static_cast<unsigned long long>(seed), culprit, size,
                  kFaults[fault], verdict.sentence.c_str());
    }
  }
  for (const auto& [name, tally] : by_fault) std::printf("  %-18s %d of %d\n", name.c_str(), tally.right, tally.all);
  EXPECT_GE(total.right * 100, total.all * 95) << total.right << " of " << total.all;
}

}  // namespace
}  // namespace heddle::diagnosis::verdict_programs_test
