// The launchers of clusters with real processes: the same binaries that `heddle run` starts,
// started by others.
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include "launched.hpp"

namespace heddle::tests::launchers_test {
namespace {

constexpr const char* kRank = HEDDLE_LAUNCH_RANK;
constexpr const char* kHello = HEDDLE_EXAMPLE_HELLO;

using Words = std::vector<std::string>;

std::string in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string file = rest.substr(0, colon) + "/" + name;
    rest.erase(0, colon + 1);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

bool has_word(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  return std::find(std::istream_iterator<std::string>(words), {}, word) != std::istream_iterator<std::string>();
}

struct Launcher {
  const char* name;
  const char* bootstrap;  // how its ranks join
  std::vector<const char*> programs;
  const char* version_says;  // in what --version prints; empty: any will do
  Words options;
  Words bound;    // each rank to a core, more than one to the same if need be
  Words unbound;  // to nothing
  bool needs_cluster = false;
};

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {"hydra", "pmi", {"mpiexec.hydra"}, "HYDRA", {}, {"-bind-to", "core"}, {"-bind-to", "none"}},
      {"openmpi",
       "pmix",
       {"mpirun.openmpi", "mpirun"},
       "open-mpi.org",
       {"--allow-run-as-root", "--oversubscribe"},
       {"--bind-to", "core:overload-allowed"},
       {"--bind-to", "none"}},
      {"prte",
       "pmix",
       {"prterun"},
       "",
       {"--allow-run-as-root"},
       {"--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"},
       {"--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"}},
      {"srun_pmix",
       "pmix",
       {"srun"},
       "",
       {"--mpi=pmix", "--overcommit"},
       {"--cpu-bind=map_cpu:0,1"},
       {"--cpu-bind=none"},
       true},
      {"srun_pmi2",
       "pmi",
       {"srun"},
       "",
       {"--mpi=pmi2", "--overcommit"},
       {"--cpu-bind=map_cpu:0,1"},
       {"--cpu-bind=none"},
       true},
  };
  return all;
}

class Launchers : public testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    for (const char* name : GetParam().programs) {
      if (program_.empty()) program_ = in_path(name);
    }
    if (program_.empty()) GTEST_SKIP() << "skipped: " << GetParam().programs.front() << " is not installed";
    if (GetParam().needs_cluster) {
      if (std::getenv("SLURM_CONF") == nullptr) {
        GTEST_SKIP() << "skipped: no cluster of Slurm is named (SLURM_CONF); tests/hosts/slurm.py starts one";
      }
      const std::string interface = GetParam().options.front().substr(std::strlen("--mpi="));
      Launched known({program_, "--mpi=list"});
      known.wait();
      if (!has_word(known.out() + known.err(), interface)) {
        GTEST_SKIP() << "skipped: this Slurm has no " << interface << ": " << known.out() << known.err();
      }
    }
    if (*GetParam().version_says == '\0') return;
    Launched version({program_, "--version"});
    version.wait();
    if (version.out().find(GetParam().version_says) == std::string::npos) {
      GTEST_SKIP() << "skipped: " << program_ << " is another launcher: " << version.out().substr(0, 80);
    }
  }

  [[nodiscard]] Words words(int ranks, const Words& command, bool bound = false) const {
    Words all = {program_};
    const Launcher& launcher = GetParam();
    all.insert(all.end(), launcher.options.begin(), launcher.options.end());
    const Words& binding = bound ? launcher.bound : launcher.unbound;
    all.insert(all.end(), binding.begin(), binding.end());
    all.insert(all.end(), {"-n", std::to_string(ranks)});
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

  std::string program_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST_P(Launchers, ranks_find_each_other) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const bool bound : {false, true}) {
      Launched job(words(ranks, {kRank, "all-together"}, bound));
      EXPECT_EQ(job.wait(), 0) << ranks << (bound ? " bound" : "") << job.out() << job.err();
    }
  }
}

TEST_P(Launchers, ranks_know_their_places) {
  Launched job(words(4, {kRank, "place"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " of 4 by " + GetParam().bootstrap + ", here " +
                             std::to_string(rank) + " of 4, machines 1\n";
    EXPECT_EQ(count(job.out(), line), 1U) << line << job.out();
  }
}

TEST_P(Launchers, first_contact_and_a_lack_of_descriptors) {
  for (const char* mode : {"first-contact", "few-descriptors"}) {
    Launched job(words(3, {kRank, mode}));
    EXPECT_EQ(job.wait(), 0) << mode << job.out() << job.err();
  }
}

TEST_P(Launchers, ranks_that_can_make_no_board_have_none) {
  Launched job(words(2, {kRank, "without-call", std::to_string(SYS_memfd_create), kRank, "no-board"}));
  const int code = job.wait();
  if (count(job.err(), "no filter of calls here") > 0) GTEST_SKIP() << job.err();
  EXPECT_EQ(code, 0) << job.out() << job.err();
}

TEST_P(Launchers, a_program_talks_through_shared_memory) {
  for (const char* direct : {"1", "0"}) {
    ::setenv("HEDDLE_SHM_DIRECT", direct, 1);
    Launched job(words(3, {kHello}));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(count(job.out(), "rank 0 got: hello from rank 2 of 3"), 1U) << job.out() << job.err();
    ::unsetenv("HEDDLE_SHM_DIRECT");
  }
}

TEST_P(Launchers, a_bootstrap_can_be_forced) {
  ::setenv("HEDDLE_BOOTSTRAP", "single", 1);
  Launched alone(words(2, {kHello}));
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_EQ(count(alone.out(), "rank 0 got: hello from rank 0 of 1"), 2U) << alone.out() << alone.err();
  ::setenv("HEDDLE_BOOTSTRAP", "carrier-pigeon", 1);
  Launched wrong(words(1, {kHello}));
  EXPECT_NE(wrong.wait(), 0);
  EXPECT_GE(count(wrong.err(), "carrier-pigeon"), 1U) << wrong.err();
  ::unsetenv("HEDDLE_BOOTSTRAP");
}

TEST_P(Launchers, an_abort_ends_the_job_with_its_code) {
  Launched job(words(3, {kRank, "one-aborts"}));
  const int code = job.wait();
  // srun may end by another code after an abort by pmi2, also by 0; what it prints is right.
  const bool told = GetParam().needs_cluster && (code > 0 || count(job.err(), "Exited with exit code 42") > 0);
  // Hydra's proxy may find mpiexec gone when it tells how its ranks ended, and then that is the
  // job's end.
  const bool stumbled = code > 0 && count(job.err(), "[proxy:") > 0 &&
                        count(job.err(), "write error") + count(job.err(), "unable to return exit status") > 0;
  EXPECT_TRUE(code == 42 || told || stumbled) << code << job.err();
  // Launchers lose output that was written just before they end a job.
  EXPECT_LE(count(job.out() + job.err(), "heddle: rank 1 aborts the job: the warp is torn"), 1U) << job.err();
}

// srun's code may be 0, as above.
bool has_failed(Launched& job) {
  return job.wait() != 0 || count(job.err(), "srun: error: ") > 0;
}

// The launcher chooses the code. Most report the signal. Hydra ends the other ranks while they
// leave after the death; if it still owes an answer to a rank that it has just ended, it ends
// itself, with a code of its own.
TEST_P(Launchers, a_killed_rank_ends_the_job) {
  Launched job(words(3, {kRank, "one-dies"}));
  EXPECT_TRUE(has_failed(job)) << job.err();
}

// All wait for rank 0, which keeps them together: they are told, or ended, and nobody hangs.
TEST_P(Launchers, a_killed_rank_0_ends_the_job) {
  Launched job(words(3, {kRank, "first-dies"}));
  EXPECT_TRUE(has_failed(job)) << job.err();
}

TEST_P(Launchers, a_killed_rank_0_ends_the_job_though_its_child_lives) {
  Launched job(words(3, {kRank, "first-dies-with-a-child"}));
  EXPECT_TRUE(has_failed(job)) << job.err();
  EXPECT_EQ(count(job.err(), "wrong: "), 0U) << job.err();
}

// Half a minute: the time that rank 0 gives a rank that is stopped while it leaves.
TEST_P(Launchers, rank_0_leaves_although_another_is_stopped_as_it_leaves) {
  Launched job(words(3, {HEDDLE_LEAVE_RANK}));
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(count(job.out(), "rank 0 has left after"), 1U) << job.out() << job.err();
  EXPECT_EQ(count(job.err(), "30 s later rank 1 has not left"), 1U) << job.err();
}

TEST_P(Launchers, a_child_of_a_rank_is_not_the_rank) {
  Launched job(words(2, {kRank, "sibling"}));
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(count(job.out(), "a rank is one process"), 2U) << job.out();
}

INSTANTIATE_TEST_SUITE_P(each, Launchers, testing::ValuesIn(launchers()),
                         [](const testing::TestParamInfo<Launcher>& one) { return std::string(one.param.name); });

// A launcher that breaks promises that it made in the environment.
class Promised : public testing::Test {
 protected:
  static Words with(const Words& variables) {
    Words all = {in_path("env"), "-u", "PMIX_RANK", "-u", "PMI_FD"};
    all.insert(all.end(), variables.begin(), variables.end());
    all.insert(all.end(), {kRank, "join"});
    return all;
  }
};

TEST_F(Promised, a_connection_that_is_not_there) {
  Launched job(with({"PMI_FD=777", "PMI_RANK=0", "PMI_SIZE=2"}));
  EXPECT_EQ(job.wait(), 99);
  EXPECT_EQ(count(job.err(), "PMI_FD=777 is not open in this process"), 1U) << job.err();
}

TEST_F(Promised, a_connection_that_is_something_else) {
  Launched job(with({"PMI_FD=0", "PMI_RANK=0", "PMI_SIZE=2"}));
  EXPECT_EQ(job.wait(), 99);
  EXPECT_EQ(count(job.err(), "PMI_FD=0 is not the launcher's socket"), 1U) << job.err();
}

TEST_F(Promised, numbers_that_are_none) {
  for (const Words& variables : {Words{"PMI_FD=x"}, Words{"PMI_FD=3"}, Words{"PMI_FD=3", "PMI_RANK=-1", "PMI_SIZE=2"},
                                 Words{"PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=99999"}}) {
    Launched job(with(variables));
    EXPECT_EQ(job.wait(), 99);
    EXPECT_EQ(count(job.err(), "is not a whole number"), 1U) << job.err();
  }
}

TEST_F(Promised, a_pmix_server_that_is_gone) {
  // A rank marks itself by a name that is the machine's: two runs of this test must not have the
  // same.
  const std::string nobody = "nobody" + std::to_string(::getpid());
  Launched job(
      with({"PMIX_NAMESPACE=" + nobody, "PMIX_RANK=0", "PMIX_SERVER_URI4=" + nobody + ".0;tcp4://127.0.0.1:1"}));
  EXPECT_EQ(job.wait(), 99) << job.err();
  EXPECT_GE(count(job.err(), "PMIx"), 1U) << job.err();
}

}  // namespace
}  // namespace heddle::tests::launchers_test
