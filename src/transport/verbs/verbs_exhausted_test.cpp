// The verbs transport over the idle libibverbs, where something runs out: what adapters make, and
// descriptors. Memory runs out in tests/api.
#include <dirent.h>
#include <sys/resource.h>

#include <memory>

#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_exhausted_test {
namespace {

// A world of two ranks; null: something was missing, and there was a message.
std::unique_ptr<World> try_world() {
  try {
    return std::make_unique<World>(setting(), 2);
  } catch (const std::runtime_error& error) {
    EXPECT_STRNE(error.what(), "");
    return nullptr;
  }
}

bool talks(World& world) {
  return world.must_send(world.port(0), message_to(1, 0, pattern(1, 100))) &&
         world.until([&] { return world.port(1).arrivals.size() == 1; });
}

std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::size_t count = 0;
  while (::readdir(folder.get()) != nullptr) ++count;
  return count;
}

// The adapters make 0, 1, 2, … objects, until two ranks can open. Nothing is left of those that
// cannot.
TEST_F(Verbs, OpeningNeedsWhatAdaptersMake) {
  std::uint64_t refused = 0;
  for (std::unique_ptr<World> world; world == nullptr; ++refused) {
    ASSERT_LT(refused, 1000U);
    idle_->objects_left = refused;
    world = try_world();
    idle_->objects_left = UINT64_MAX;
    if (world == nullptr) {
      ASSERT_EQ(idle_->objects, 0U) << refused;
    } else {
      EXPECT_TRUE(talks(*world));
    }
  }
  EXPECT_GT(refused, 20U);
  EXPECT_EQ(idle_->objects, 0U);
}

// They make 0, 1, 2, … objects more while two workers connect, which waits for the others.
TEST_F(Verbs, ConnectingWaitsForWhatAdaptersMake) {
  std::uint64_t left = 0;
  for (bool enough = false; !enough; ++left) {
    ASSERT_LT(left, 1000U);
    World world(setting(), 2);
    idle_->objects_left = left;
    ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 100))));
    const auto over = [&] { return idle_->objects_left == 0 || world.port(1).arrivals.size() == 1; };
    ASSERT_TRUE(world.until(over)) << left;
    for (int i = 0; i < 100; ++i) world.pump();
    enough = idle_->objects_left != 0;
    idle_->objects_left = UINT64_MAX;
    ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; })) << left;
    EXPECT_EQ(world.transport(0).lost(1) + world.transport(1).lost(0), 0U) << left;
  }
  EXPECT_GT(left, 4U);
}

// 0, 1, 2, … descriptors more, until two ranks can open.
TEST_F(Verbs, OpeningNeedsDescriptors) {
  const std::size_t open = open_descriptors();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlim_t more = 0;
  for (std::unique_ptr<World> world; world == nullptr; ++more) {
    ASSERT_LT(more, 1000U);
    const rlimit few{open + more, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    world = try_world();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    if (world == nullptr) {
      ASSERT_EQ(open_descriptors(), open) << more;
      ASSERT_EQ(idle_->objects, 0U) << more;
    } else {
      EXPECT_TRUE(talks(*world));
    }
  }
  EXPECT_GT(more, 4U);
  EXPECT_EQ(open_descriptors(), open);
}

}  // namespace
}  // namespace heddle::transport::verbs::verbs_exhausted_test
