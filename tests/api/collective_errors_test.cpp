// Wrong arguments are reported with their values: by the member that has them, or by all members if
// their arguments differ.
#include <array>
#include <complex>

#include "api/test_collective.hpp"

namespace heddle::test::collective_errors_test {
namespace {

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

class CollectiveArguments : public testing::Test {
 protected:
  Context context_ = Context::join();
  Team team_ = Team::world(context_);
  std::array<std::uint64_t, 8> here_{};
  std::array<std::uint64_t, 8> there_{};
  heddle_collective made_{};
  heddle_reduction sum_ = reduction<std::uint64_t>(HEDDLE_SUM);
};

TEST_F(CollectiveArguments, HandlesAndPlacesForThem) {
  expect_error(heddle_broadcast({}, here_.data(), 8, 0), HEDDLE_ERR_HANDLE, "the team is the null handle");
  expect_error(heddle_broadcast({context_.handle().id}, here_.data(), 8, 0), HEDDLE_ERR_HANDLE, "team 0x");
  expect_error(heddle_broadcast_start(team_.handle(), here_.data(), 8, 0, nullptr), HEDDLE_ERR_ARGUMENT,
               "heddle_broadcast_start: collective is null");
  expect_error(heddle_broadcast_init(team_.handle(), here_.data(), 8, 0, nullptr, nullptr), HEDDLE_ERR_ARGUMENT,
               "heddle_broadcast_init: collective is null");
  for (const auto call : {heddle_collective_start, heddle_collective_test, heddle_collective_free}) {
    expect_error(call({}), HEDDLE_ERR_HANDLE, "the collective is the null handle");
    expect_error(call({team_.handle().id}), HEDDLE_ERR_HANDLE, "is of another type");
  }
  expect_error(heddle_collective_wait({~0ULL}, 0), HEDDLE_ERR_HANDLE, "is not open");
  const char* name = nullptr;
  expect_error(heddle_collective_algorithm({}, &name), HEDDLE_ERR_HANDLE, "null handle");
}

TEST_F(CollectiveArguments, Roots) {
  expect_error(heddle_broadcast(team_.handle(), here_.data(), 8, 1), HEDDLE_ERR_RANK,
               "heddle_broadcast: root 1: the team has members 0-0");
  expect_error(heddle_reduce(team_.handle(), here_.data(), there_.data(), 8, &sum_, 7), HEDDLE_ERR_RANK, "root 7");
  expect_error(heddle_gather_start(team_.handle(), here_.data(), there_.data(), 8, 7, &made_), HEDDLE_ERR_RANK,
               "heddle_gather_start: root 7");
  expect_error(heddle_scatter_init(team_.handle(), here_.data(), there_.data(), 8, 7, nullptr, &made_), HEDDLE_ERR_RANK,
               "heddle_scatter_init: root 7");
  EXPECT_EQ(made_.id, 0U);
}

TEST_F(CollectiveArguments, Buffers) {
  expect_error(heddle_broadcast(team_.handle(), nullptr, 8, 0), HEDDLE_ERR_ARGUMENT, "data is null");
  expect_error(heddle_allgather(team_.handle(), nullptr, there_.data(), 8), HEDDLE_ERR_ARGUMENT,
               "heddle_allgather: send is null, and this member needs it for 8 bytes");
  expect_error(heddle_alltoall(team_.handle(), here_.data(), nullptr, 8), HEDDLE_ERR_ARGUMENT, "receive is null");
  auto* bytes = reinterpret_cast<std::byte*>(here_.data());
  expect_error(heddle_scan(team_.handle(), bytes + 1, there_.data(), 2, &sum_), HEDDLE_ERR_ALIGNMENT,
               "is not aligned to 8 bytes, as elements of uint64 are");
  expect_error(heddle_allreduce(team_.handle(), here_.data(), bytes + 4, 2, &sum_), HEDDLE_ERR_ALIGNMENT, "receive");
  expect_error(heddle_allreduce(team_.handle(), bytes, bytes + 8, 2, &sum_), HEDDLE_ERR_ARGUMENT, "overlap");
  expect_error(heddle_allgather(team_.handle(), bytes + 7, bytes, 8), HEDDLE_ERR_ARGUMENT, "overlap");
  expect_error(heddle_reduce_scatter(team_.handle(), bytes, bytes, 2, &sum_), HEDDLE_ERR_ARGUMENT, "overlap");
  expect_error(heddle_alltoall(team_.handle(), bytes, bytes, 8), HEDDLE_ERR_ARGUMENT, "overlap");
  expect_error(heddle_broadcast(team_.handle(), bytes, (std::size_t{1} << 48) + 1, 0), HEDDLE_ERR_SIZE, "2^48");
  expect_error(heddle_allreduce(team_.handle(), here_.data(), there_.data(), SIZE_MAX / 2, &sum_), HEDDLE_ERR_SIZE,
               "elements for each of 1 members are more than 2^48 bytes");
  EXPECT_EQ(heddle_allreduce(team_.handle(), bytes, bytes, 2, &sum_), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_allreduce(team_.handle(), nullptr, nullptr, 0, &sum_), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_broadcast(team_.handle(), nullptr, 0, 0), HEDDLE_DONE) << heddle_last_error();
}

TEST_F(CollectiveArguments, Reductions) {
  expect_error(heddle_allreduce(team_.handle(), here_.data(), there_.data(), 2, nullptr), HEDDLE_ERR_ARGUMENT,
               "reduction is null");
  const heddle_reduction none{};
  expect_error(heddle_allreduce(team_.handle(), here_.data(), there_.data(), 2, &none), HEDDLE_ERR_ARGUMENT, "type 0");
  const heddle_reduction impossible{HEDDLE_DOUBLE, HEDDLE_BAND, nullptr, nullptr, 0};
  expect_error(heddle_scan(team_.handle(), here_.data(), there_.data(), 2, &impossible), HEDDLE_ERR_UNSUPPORTED,
               "heddle_scan: the operator band does not take double");
}

TEST_F(CollectiveArguments, Options) {
  const heddle_collective_options small{8, nullptr, 0};
  expect_error(heddle_barrier_init(team_.handle(), &small, &made_), HEDDLE_ERR_ARGUMENT,
               "collective options of size 8");
  const heddle_collective_options unknown{sizeof unknown, "broadcast.nonsense", 0};
  expect_error(heddle_broadcast_init(team_.handle(), here_.data(), 8, 0, &unknown, &made_), HEDDLE_ERR_ARGUMENT,
               "broadcast.nonsense");
  const heddle_collective_options other{sizeof other, "allreduce.ring", 0};
  expect_error(heddle_broadcast_init(team_.handle(), here_.data(), 8, 0, &other, &made_), HEDDLE_ERR_ARGUMENT,
               "allreduce.ring");
  const heddle_collective_options torus{sizeof torus, "broadcast.trinaryx3", 0};
  expect_error(heddle_broadcast_init(team_.handle(), here_.data(), 8, 0, &torus, &made_), HEDDLE_ERR_ARGUMENT,
               "broadcast.trinaryx3");
  EXPECT_EQ(made_.id, 0U);
}

TEST_F(CollectiveArguments, NothingWaitsInAHandler) {
  Worker worker = context_.open_worker();
  struct Told {
    heddle_team team;
    Context* context;
    int refused = 0;
  } told{team_.handle(), &context_};
  const auto inside = [](void* arg) {
    auto* to = static_cast<Told*>(arg);
    heddle_collective made{};
    heddle_team team{};
    to->refused += heddle_barrier(to->team) == HEDDLE_ERR_STATE;
    to->refused += heddle_barrier_start(to->team, &made) == HEDDLE_ERR_STATE;
    to->refused += heddle_barrier_init(to->team, nullptr, &made) == HEDDLE_ERR_STATE;
    to->refused += heddle_team_world(to->context->handle(), &team) == HEDDLE_ERR_STATE;
    to->refused += heddle_team_split(to->team, 0, 0, &team) == HEDDLE_ERR_STATE;
  };
  ASSERT_EQ(worker.run_on_engine(inside, &told), HEDDLE_DONE) << heddle_last_error();
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
  EXPECT_EQ(told.refused, 5) << heddle_last_error();
}

TEST_F(CollectiveArguments, OnlyWhatMayBeStartedIs) {
  ASSERT_EQ(heddle_barrier_init(team_.handle(), nullptr, &made_), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_collective_test(made_), HEDDLE_DONE) << "no run is under way";
  EXPECT_EQ(heddle_collective_wait(made_, 0), HEDDLE_DONE);
  const char* name = nullptr;
  EXPECT_EQ(heddle_collective_algorithm(made_, &name), HEDDLE_DONE);
  int offloaded = -1;
  expect_error(heddle_collective_offloaded({}, &offloaded), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_collective_offloaded(made_, nullptr), HEDDLE_ERR_ARGUMENT, "offloaded");
  EXPECT_EQ(heddle_collective_offloaded(made_, &offloaded), HEDDLE_DONE);
  EXPECT_EQ(offloaded, 0);
  std::uint32_t member = 0;
  expect_error(heddle_collective_awaited({}, &member), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_collective_awaited(made_, nullptr), HEDDLE_ERR_ARGUMENT, "member");
  EXPECT_EQ(heddle_collective_awaited(made_, &member), HEDDLE_DONE);
  EXPECT_EQ(member, HEDDLE_NO_RANK) << "no run is under way";
  EXPECT_EQ(std::string(name).rfind("barrier.", 0), 0U) << name;
  EXPECT_EQ(heddle_collective_free(made_), HEDDLE_DONE);
  expect_error(heddle_collective_start(made_), HEDDLE_ERR_HANDLE, "is not open");
}

// With a second member that has not come, a run does not end.
TEST(CollectiveState, StartedTwiceAndFreedWhileActive) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    std::atomic<bool> asked{false};
    run_members(2, transport, [&](const Member& member) {
      heddle_collective made{};
      must(heddle_barrier_init(member.world.handle(), nullptr, &made), "init");
      heddle_collective begun{};
      must(heddle_barrier_start(member.world.handle(), &begun), "nonblocking");
      if (member.rank() == 0) {
        must(heddle_collective_start(made), "start");
        expect_error(heddle_collective_start(made), HEDDLE_ERR_STATE, "");
        expect_error(heddle_collective_free(made), HEDDLE_ERR_STATE, "");
        expect_error(heddle_collective_start(begun), HEDDLE_ERR_STATE, "");
        expect_error(heddle_collective_free(begun), HEDDLE_ERR_STATE, "not persistent");
        expect_error(heddle_team_free(member.world.handle()), HEDDLE_ERR_STATE, "");
        asked = true;
      } else {
        must_be(within_time([&] { return asked.load(); }), "the other one has asked");
        must(heddle_collective_start(made), "start");
      }
      must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
      must(heddle_collective_wait(begun, HEDDLE_FOREVER), "wait");
      must_be(heddle_collective_wait(begun, HEDDLE_FOREVER) == HEDDLE_ERR_HANDLE, "closed by its end");
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

// ---- members that do not agree ------------------------------------------------------------------

struct Odd {
  const char* name;
  Status expected;
  const char* words;  // in all members' messages
  Status (*call)(heddle_team team, bool odd, heddle_collective* made);
};

std::ostream& operator<<(std::ostream& out, const Odd& odd) {
  return out << odd.name;
}

thread_local std::array<std::uint64_t, 64> t_here;
thread_local std::array<std::uint64_t, 64> t_there;

const std::vector<Odd>& odds() {
  static const std::vector<Odd> all = {
      {"Bytes", HEDDLE_ERR_ARGUMENT, "24",
       [](heddle_team team, bool odd, heddle_collective* made) {
         return heddle_broadcast_init(team, t_here.data(), odd ? 24 : 32, 0, nullptr, made);
       }},
      {"Root", HEDDLE_ERR_ARGUMENT, "root",
       [](heddle_team team, bool odd, heddle_collective* made) {
         return heddle_broadcast_init(team, t_here.data(), 8, odd ? 1 : 0, nullptr, made);
       }},
      {"Operation", HEDDLE_ERR_ARGUMENT, "gather",
       [](heddle_team team, bool odd, heddle_collective* made) {
         return odd ? heddle_allgather_init(team, t_here.data(), t_there.data(), 8, nullptr, made)
                    : heddle_alltoall_init(team, t_here.data(), t_there.data(), 8, nullptr, made);
       }},
      {"Reduction", HEDDLE_ERR_ARGUMENT, "max of int64",
       [](heddle_team team, bool odd, heddle_collective* made) {
         const heddle_reduction how{HEDDLE_INT64, odd ? HEDDLE_SUM : HEDDLE_MAX, nullptr, nullptr, 0};
         return heddle_allreduce_init(team, t_here.data(), t_there.data(), 4, &how, nullptr, made);
       }},
      {"NonblockingBytes", HEDDLE_ERR_ARGUMENT, "128",
       [](heddle_team team, bool odd, heddle_collective* made) {
         const Status begun = heddle_allgather_start(team, t_here.data(), t_there.data(), odd ? 128 : 16, made);
         if (begun != HEDDLE_POSTED) return begun;
         // its end reports the error
         return heddle_collective_wait(std::exchange(*made, {}), HEDDLE_FOREVER);
       }},
  };
  return all;
}

class Disagreement : public testing::TestWithParam<Odd> {};
INSTANTIATE_TEST_SUITE_P(About, Disagreement, testing::ValuesIn(odds()),
                         [](const auto& row) { return row.param.name; });

TEST_P(Disagreement, IsToldToAllMembersAndTheTeamGoesOn) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    run_members(3, transport, [&](const Member& member) {
      for (int round = 0; round < 3; ++round) {
        heddle_collective made{};
        const Status status = GetParam().call(member.world.handle(), member.rank() == 1, &made);
        const std::string why = heddle_last_error();
        must_be(status == GetParam().expected, std::string("told ") + heddle_status_name(status) + ": " + why);
        must_be(why.find(GetParam().words) != std::string::npos, "the values are named in: " + why);
        must_be(why.find(member.rank() == 1 ? "rank 0" : "rank 1") != std::string::npos, "a rank is named in: " + why);
        must_be(made.id == 0, "no handle");
        Part part(member.context, member.world, {Operation::allreduce, 100, 0, Memory::own, false, nullptr, 0});
        part.run(Form::persistent, 2);
        part.run(Form::blocking, 2);
      }
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

}  // namespace
}  // namespace heddle::test::collective_errors_test
