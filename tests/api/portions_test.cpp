// Work for thousands of operations at once is done in portions: each call of progress is short.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "api/test_job.hpp"

namespace heddle::test::portions_test {
namespace {

constexpr std::size_t kOperations = 8192;
constexpr int kMostAtOnce = 1400;

struct Ended {
  int all = 0;
  int in_this_call = 0;
  Status expected = HEDDLE_DONE;
  int otherwise = 0;
  Status last = HEDDLE_DONE;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Ended*>(arg);
    ++self->all;
    ++self->in_this_call;
    if (status != self->expected) {
      ++self->otherwise;
      self->last = status;
    }
  }
};

// Rank 0 has atomics under way that rank 1 will never answer.
class Portions : public testing::Test {
 protected:
  Portions() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) contexts_.push_back(job_.join(rank));
    worker_ = contexts_[0].open_worker(HEDDLE_SHARING_EXCLUSIVE);
    peer_ = contexts_[1].open_worker(HEDDLE_SHARING_EXCLUSIVE);
    region_ = contexts_[1].register_memory(std::as_writable_bytes(std::span(memory_)));
    remote_ = contexts_[0].unpack(region_.pack());
  }
  ~Portions() override {
    remote_ = {};
    region_ = {};
    worker_ = {};
    peer_ = {};
    std::thread other([this] { contexts_[1] = {}; });
    contexts_[0] = {};
    other.join();
  }
  void post_atomics() {
    const heddle_completion completion{&Ended::tell, &ended_, {}, HEDDLE_WHEN_REMOTE};
    std::size_t posted = 0;
    for (Status status = HEDDLE_POSTED; status == HEDDLE_POSTED && posted < kOperations; ++posted) {
      const heddle_fetch fetch{1, 0, copies_.data() + posted};
      status = heddle_try_fetch_atomic(worker_.handle(), HEDDLE_ADD64, {remote_.handle(), 0}, &fetch, &completion);
      if (status != HEDDLE_POSTED) break;
    }
    posted_ = static_cast<int>(posted);
    ASSERT_GT(posted_, 2 * kMostAtOnce) << "too few to tell";
  }
  // Progress until all have ended; the most that ended in one call.
  int end_all() {
    int most = 0;
    within_time([&] { return ended_.all == posted_; },
                [&] {
                  ended_.in_this_call = 0;
                  EXPECT_GE(worker_.progress(), 0) << heddle_last_error();
                  most = std::max(most, ended_.in_this_call);
                });
    EXPECT_EQ(ended_.all, posted_);
    EXPECT_EQ(ended_.otherwise, 0) << heddle_status_name(ended_.last);
    return most;
  }

  // Their requests stand in the peer's ring, all of them.
  const Variables variables_{{{"HEDDLE_WORKER_OPERATIONS", "8192"}, {"HEDDLE_SHM_RING_BYTES", "4M"}}};
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(8, 7);
  std::vector<std::uint64_t> copies_ = std::vector<std::uint64_t>(kOperations);
  Ended ended_;
  int posted_ = 0;
  Job job_{2, "shm"};
  std::vector<Context> contexts_;
  Worker worker_;
  Worker peer_;
  Region region_;
  RemoteRegion remote_;
};

TEST_F(Portions, OfThePeersDeath) {
  post_atomics();
  ended_.expected = HEDDLE_ERR_PEER_FAILED;
  check(heddle_inproc_fail(job_.handle(), 1));
  EXPECT_LE(end_all(), kMostAtOnce);
}

TEST_F(Portions, OfThePeersClosing) {
  post_atomics();
  ended_.expected = HEDDLE_ERR_CANCELLED;
  peer_ = {};
  EXPECT_LE(end_all(), kMostAtOnce);
}

}  // namespace
}  // namespace heddle::test::portions_test
