// Remote regions whose owner is met at the first access, while other threads use or release them.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/test_core.hpp"
#include "transport/common/forwarding.hpp"

namespace heddle::engine::late_test {
namespace {

// Imports what the test says.
class LateTransport final : public transport::ForwardingTransport {
 public:
  explicit LateTransport(std::unique_ptr<transport::Transport> inner) : ForwardingTransport(std::move(inner)) {}
  [[nodiscard]] bool imports_late(std::uint32_t) const override { return true; }
  [[nodiscard]] base::Result<transport::RemoteMemory> try_import(std::uint32_t rank,
                                                                 const transport::MemoryKey&) override {
    ++tries;
    if (const auto happens = std::exchange(meanwhile, nullptr)) happens();
    if (status != HEDDLE_DONE) return status;
    ++imported;
    transport::RemoteMemory memory;
    memory.rank = rank;
    memory.bytes = bytes;
    memory.direct = far.data();
    return memory;
  }
  void release(const transport::RemoteMemory& memory) override {
    if (memory.direct != nullptr) ++released;
  }

  base::Status status = HEDDLE_DONE;
  std::uint64_t bytes = 64;
  std::function<void()> meanwhile;  // once, while the owner is being met
  std::atomic<int> tries{0};
  std::atomic<int> imported{0};
  std::atomic<int> released{0};
  std::array<std::byte, 64> far{};
};

class LateJob final : public Job {
 public:
  explicit LateJob(bootstrap::inproc::ThreadJob& of) : Job(environment_of_process()) {
    EXPECT_EQ(join_job({"inproc", &of, 0}, base::Level::warn), HEDDLE_DONE) << base::last_message();
    auto inner = transport::open("loopback", bootstrap(), environment());
    EXPECT_TRUE(inner.ok()) << base::last_message();
    auto opened = std::make_unique<LateTransport>(std::move(*inner));
    played = opened.get();
    set_transport(std::move(opened));
  }
  LateTransport* played;

 private:
  static base::Environment environment_of_process() {
    base::Environment environment;
    environment.config = std::move(*base::Config::read());
    return environment;
  }
};

class Late : public testing::Test {
 protected:
  static constexpr std::uint32_t kOwner = 1;

  void TearDown() override {
    objects.clear();
    EXPECT_EQ(played.imported, played.released) << "a mapping that stays, or is undone twice";
  }
  RemoteRegion* import_late() {
    auto imported = objects.import_late(wire::encode({job.digest(), kOwner, 1, 64, {}}));
    EXPECT_TRUE(imported.ok()) << base::last_message();
    EXPECT_TRUE((*imported)->is(RemoteRegion::Barred::unmet));
    return *imported;
  }

  bootstrap::inproc::ThreadJob inproc{3};
  LateJob job{inproc};
  LateTransport& played = *job.played;
  Objects objects{job};
};

TEST_F(Late, ItIsDirectOnceItsOwnerHasBeenMet) {
  RemoteRegion* const remote = import_late();
  EXPECT_FALSE(remote->direct_range(0, 1));
  played.status = HEDDLE_AGAIN;
  EXPECT_EQ(objects.meet(*remote), HEDDLE_AGAIN);
  EXPECT_TRUE(remote->is(RemoteRegion::Barred::unmet));
  played.status = HEDDLE_DONE;
  EXPECT_EQ(objects.meet(*remote), HEDDLE_DONE);
  EXPECT_TRUE(remote->is(RemoteRegion::Barred::no));
  EXPECT_TRUE(remote->direct_range(0, 64));
  EXPECT_EQ(remote->direct, played.far.data());
  EXPECT_EQ(objects.meet(*remote), HEDDLE_DONE);
  EXPECT_EQ(objects.meet_wait(objects.handle_of(remote)), HEDDLE_DONE);
  EXPECT_EQ(played.tries, 2) << "it has been met";
}

TEST_F(Late, AKeyForLessThanItsNameSaysIsRefused) {
  RemoteRegion* const remote = import_late();
  played.bytes = 63;
  EXPECT_EQ(objects.meet(*remote), HEDDLE_ERR_PROTOCOL);
  EXPECT_TRUE(remote->is(RemoteRegion::Barred::unmet));
}

TEST_F(Late, AReleaseWhileItsOwnerIsBeingMet) {
  RemoteRegion* const remote = import_late();
  played.meanwhile = [&] { objects.close_remote(remote); };
  EXPECT_EQ(objects.meet(*remote), HEDDLE_ERR_HANDLE);
  EXPECT_FALSE(objects.retired());
}

// The allocator mostly gives the new one the place of the old one.
TEST_F(Late, AnotherOneTakesItsPlaceWhileItsOwnerIsBeingMet) {
  RemoteRegion* const remote = import_late();
  RemoteRegion* other = nullptr;
  played.meanwhile = [&] {
    objects.close_remote(remote);
    other = import_late();
  };
  EXPECT_EQ(objects.meet(*remote), HEDDLE_ERR_HANDLE);
  EXPECT_TRUE(other->is(RemoteRegion::Barred::unmet));
  EXPECT_EQ(objects.meet(*other), HEDDLE_DONE);
  EXPECT_TRUE(other->direct_range(0, 64));
}

TEST_F(Late, AWaitEndsWhenItIsReleased) {
  RemoteRegion* const remote = import_late();
  const std::uint64_t handle = objects.handle_of(remote);
  played.status = HEDDLE_AGAIN;
  std::thread releases([&] {
    while (played.tries < 3) std::this_thread::yield();
    objects.close_remote(remote);
  });
  EXPECT_EQ(objects.meet_wait(handle), HEDDLE_ERR_HANDLE);
  releases.join();
}

TEST_F(Late, OfTwoThatMeetItAtOnceOneIsFirst) {
  RemoteRegion* const remote = import_late();
  played.meanwhile = [&] { EXPECT_EQ(objects.meet(*remote), HEDDLE_DONE); };
  EXPECT_EQ(objects.meet(*remote), HEDDLE_DONE);
  EXPECT_TRUE(remote->direct_range(0, 64));
  EXPECT_EQ(played.imported, 2);
  EXPECT_EQ(played.released, 1) << "the second's own";
}

TEST_F(Late, AnOwnerThatDiesWhileItIsBeingMetDoesNotComeToLifeAgain) {
  RemoteRegion* const remote = import_late();
  played.meanwhile = [&] {
    static_cast<void>(inproc.fail(kOwner));
    objects.note_failures();
  };
  EXPECT_EQ(objects.meet(*remote), HEDDLE_DONE) << "it is not unmet any more";
  EXPECT_TRUE(remote->is(RemoteRegion::Barred::failed));
  EXPECT_FALSE(remote->direct_range(0, 1));
  EXPECT_EQ(remote->direct, nullptr);
  objects.close_remote(remote);
  EXPECT_EQ(played.released, 1);
}

// One thread waits for the owner, one meets it, one releases: in any order.
TEST_F(Late, ThreadsMeetWaitAndRelease) {
  for (int round = 0; round < 300; ++round) {
    RemoteRegion* const remote = import_late();
    const std::uint64_t handle = objects.handle_of(remote);
    std::atomic<int> ready{0};
    const auto begin = [&] {
      ready.fetch_add(1);
      while (ready.load() < 3) std::this_thread::yield();
    };
    const auto known = [](base::Status status) { return status == HEDDLE_DONE || status == HEDDLE_ERR_HANDLE; };
    std::thread waits([&] {
      begin();
      EXPECT_TRUE(known(objects.meet_wait(handle)));
    });
    std::thread meets([&] {
      begin();
      EXPECT_TRUE(known(objects.meet(handle)));
    });
    begin();
    objects.close_remote(remote);
    waits.join();
    meets.join();
    ASSERT_EQ(played.imported, played.released);
  }
}

}  // namespace
}  // namespace heddle::engine::late_test
