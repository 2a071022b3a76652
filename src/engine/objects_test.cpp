// Regions, remote regions and counters of a context: what they are found by, and when they go.
#include "engine/objects.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/test_core.hpp"

namespace heddle::engine::objects_test {
namespace {

// ---- Owned --------------------------------------------------------------------------------------

// An object of a type with few handles.
struct Thing {
  static constexpr HandleType kType = HandleType::inproc_job;
  explicit Thing(int* alive) : alive_(alive) { ++*alive_; }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;
  ~Thing() { --*alive_; }
  int* alive_;
};

TEST(Owned, AnObjectIsFoundByItsHandleUntilItIsRemoved) {
  int alive = 0;
  Owned<Thing> owned;
  std::uint64_t prepared = 0;
  bool found = true;
  const auto added = owned.add(std::make_unique<Thing>(&alive), [&](Thing& thing, std::uint64_t handle) {
    prepared = handle;
    found = find_handle<Thing>(handle) == &thing;
  });
  ASSERT_TRUE(added.ok());
  Thing* const thing = *added;
  const std::uint64_t handle = owned.handle(thing);
  EXPECT_NE(handle, 0U);
  EXPECT_EQ(prepared, handle);
  EXPECT_TRUE(found);
  EXPECT_EQ(find_handle<Thing>(handle), thing);
  EXPECT_EQ(owned.any(), thing);
  EXPECT_EQ(owned.all(), std::vector<Thing*>{thing});

  std::unique_ptr<Thing> taken = owned.remove(thing);
  EXPECT_EQ(taken.get(), thing);
  EXPECT_EQ(alive, 1) << "it is the caller's now";
  EXPECT_EQ(find_handle<Thing>(handle), nullptr);
  EXPECT_EQ(owned.handle(thing), 0U);
  EXPECT_EQ(owned.remove(thing), nullptr) << "only once";
  EXPECT_EQ(owned.any(), nullptr);
  EXPECT_EQ(owned.remove_any(), nullptr);
}

TEST(Owned, ItsEndClosesAllHandles) {
  int alive = 0;
  std::vector<std::uint64_t> handles;
  {
    Owned<Thing> owned;
    for (int i = 0; i < 5; ++i) handles.push_back(owned.handle(*owned.add(std::make_unique<Thing>(&alive))));
    EXPECT_EQ(alive, 5);
    int seen = 0;
    owned.for_each([&](Thing&) { ++seen; });
    EXPECT_EQ(seen, 5);
    EXPECT_NE(owned.remove_any(), nullptr);
    EXPECT_EQ(alive, 4);
  }
  EXPECT_EQ(alive, 0);
  for (const std::uint64_t handle : handles) EXPECT_EQ(find_handle<Thing>(handle), nullptr);
}

TEST(Owned, WithoutAHandleTheObjectIsDestroyedAndNothingIsLost) {
  int alive = 0;
  Owned<Thing> owned;
  std::size_t count = 0;
  while (owned.add(std::make_unique<Thing>(&alive)).ok()) ++count;
  EXPECT_EQ(count, handle_entries(Thing::kType) - 1) << "entry 0 is the null handle's";
  EXPECT_EQ(alive, static_cast<int>(count));
  EXPECT_EQ(owned.add(std::make_unique<Thing>(&alive)).status(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(alive, static_cast<int>(count));
  EXPECT_EQ(owned.all().size(), count);
  owned.remove_any();
  EXPECT_TRUE(owned.add(std::make_unique<Thing>(&alive)).ok());
}

struct Numbered {
  static constexpr HandleType kType = HandleType::partitioned;
  std::uint64_t number;
};

// Some threads add and remove while others look handles up: a thread that finds a handle finds its
// object.
TEST(Owned, HandlesAreLookedUpWhileThreadsAddAndRemove) {
  Owned<Numbered> owned;
  std::atomic<bool> over{false};
  std::array<Numbered*, 2> kept{};
  // Nobody looks up a handle that may be closed meanwhile: that is an error of the program.
  Numbered* const open = *owned.add(std::make_unique<Numbered>(Numbered{0}));
  std::thread looks([&] {
    while (!over.load(std::memory_order_relaxed)) {
      ASSERT_EQ(find_handle<Numbered>(owned.handle(open)), open);
      for (const Numbered* each : owned.all()) static_cast<void>(owned.handle(each));
    }
  });
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        Numbered* const mine = *owned.add(std::make_unique<Numbered>(Numbered{i}));
        const std::uint64_t handle = owned.handle(mine);
        ASSERT_EQ(find_handle<Numbered>(handle), mine);
        if (i + 1 == 2000) {
          kept[thread] = mine;
          break;
        }
        ASSERT_NE(owned.remove(mine), nullptr);
        ASSERT_EQ(find_handle<Numbered>(handle), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over.store(true, std::memory_order_relaxed);
  looks.join();
  std::vector<Numbered*> all = owned.all();
  EXPECT_EQ(all.size(), 3U);
  for (Numbered* each : kept) EXPECT_NE(std::find(all.begin(), all.end(), each), all.end());
}

// ---- Objects ------------------------------------------------------------------------------------

// A worker that says what it names.
struct Namer final : NamesObjects {
  [[nodiscard]] bool names_remote(const RemoteRegion* of) const override {
    ++asked;
    return of == remote;
  }
  [[nodiscard]] bool names_counter(const OperationCounter* of) const override { return of == counter; }
  const RemoteRegion* remote = nullptr;
  const OperationCounter* counter = nullptr;
  mutable int asked = 0;
};

class ObjectsTest : public test::PlayedCore {
 protected:
  ObjectsTest() : PlayedCore(3) { objects.add(namer); }
  ~ObjectsTest() override { objects.remove(namer); }

  // A remote region for this rank's own region.
  RemoteRegion* import_own() {
    auto region = objects.open_region(memory.data(), memory.size());
    EXPECT_TRUE(region.ok()) << base::last_message();
    auto imported = objects.import(objects.pack(**region));
    EXPECT_TRUE(imported.ok()) << base::last_message();
    return *imported;
  }

  std::array<std::byte, 256> memory{};
  Namer namer;
};

TEST_F(ObjectsTest, ARegionIsFoundByItsAddressesAndItsNumber) {
  auto opened = objects.open_region(memory.data() + 16, 100);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  Region* const region = *opened;
  EXPECT_FALSE(region->allocated);
  EXPECT_EQ(region->owner, &objects);
  EXPECT_EQ(objects.region_around(memory.data() + 16, 100), region);
  EXPECT_EQ(objects.region_around(memory.data() + 20, 96), region);
  EXPECT_EQ(objects.region_around(memory.data() + 116, 0), region);
  EXPECT_EQ(objects.region_around(memory.data() + 20, 97), nullptr);
  EXPECT_EQ(objects.region_around(memory.data() + 15, 1), nullptr);
  EXPECT_EQ(objects.region_around(memory.data() + 20, ~std::uint64_t{0}), nullptr);
  EXPECT_EQ(find_handle<Region>(objects.handle_of(region)), region);
  const std::uint64_t handle = objects.handle_of(region);
  objects.close_region(region);
  EXPECT_EQ(objects.region_around(memory.data() + 16, 100), nullptr);
  EXPECT_EQ(find_handle<Region>(handle), nullptr);
  objects.close_region(region);  // of which nothing is known: nothing happens

  auto allocated = objects.open_region(nullptr, 4096);
  ASSERT_TRUE(allocated.ok());
  EXPECT_TRUE((*allocated)->allocated);
  EXPECT_EQ(objects.region_around((*allocated)->memory.address, 4096), *allocated);
}

TEST_F(ObjectsTest, AnImportedRegionIsTheOneThatWasPacked) {
  RemoteRegion* const remote = import_own();
  EXPECT_EQ(remote->rank, 0U);
  EXPECT_EQ(remote->bytes, memory.size());
  EXPECT_EQ(remote->owner, &objects);
  EXPECT_EQ(find_handle<RemoteRegion>(objects.handle_of(remote)), remote);
  EXPECT_EQ(RemoteRegion::of(&remote->memory), remote);
  EXPECT_TRUE(remote->range(0, memory.size()));
  EXPECT_TRUE(remote->range(memory.size(), 0));
  EXPECT_FALSE(remote->range(1, memory.size()));
  EXPECT_FALSE(remote->range(~std::uint64_t{0}, 2)) << "no sum that wraps around";
}

TEST_F(ObjectsTest, WhatIsNoRegionOfThisJobIsNotImported) {
  auto region = objects.open_region(memory.data(), memory.size());
  ASSERT_TRUE(region.ok());
  const auto packed = objects.pack(**region);
  wire::PackedRegion name = *wire::decode_region(packed);
  const auto import = [&](const wire::PackedRegion& what) { return objects.import(wire::encode(what)).status(); };
  EXPECT_TRUE(objects.import(packed).ok());
  wire::PackedRegion other = name;
  other.job ^= 1;
  EXPECT_EQ(import(other), HEDDLE_ERR_PROTOCOL);
  other = name;
  other.rank = 3;
  EXPECT_EQ(import(other), HEDDLE_ERR_RANK);
  EXPECT_NE(std::string(base::last_message()).find("3 ranks"), std::string::npos) << base::last_message();
  EXPECT_LT(objects.import(std::span(packed).first(packed.size() / 2)).status(), HEDDLE_DONE);
  EXPECT_LT(objects.import({}).status(), HEDDLE_DONE);
}

TEST_F(ObjectsTest, WhatIsReleasedGoesWhenNobodyNamesItAnyMore) {
  RemoteRegion* const remote = import_own();
  const std::uint64_t handle = objects.handle_of(remote);
  namer.remote = remote;
  objects.close_remote(remote);
  EXPECT_EQ(find_handle<RemoteRegion>(handle), nullptr) << "at once";
  EXPECT_TRUE(objects.retired());
  EXPECT_TRUE(remote->closed) << "it lives, for the operations that name it";
  objects.reclaim();
  EXPECT_TRUE(objects.retired());
  namer.remote = nullptr;
  objects.reclaim();
  EXPECT_FALSE(objects.retired());
  const int asked = namer.asked;
  objects.reclaim();
  EXPECT_EQ(namer.asked, asked) << "nothing is left to ask about";

  OperationCounter* const counter = *objects.open_counter(0, false);
  const std::uint64_t number = objects.handle_of(counter);
  namer.counter = counter;
  objects.close_counter(counter);
  EXPECT_EQ(find_handle<OperationCounter>(number), nullptr);
  EXPECT_TRUE(counter->closed());
  EXPECT_TRUE(objects.retired());
  objects.remove(namer);  // the worker has been closed
  objects.reclaim();
  EXPECT_FALSE(objects.retired());
  objects.add(namer);
}

TEST_F(ObjectsTest, WhatNobodyNamesGoesAtOnce) {
  objects.close_remote(import_own());
  EXPECT_FALSE(objects.retired());
  objects.close_counter(*objects.open_counter(0, false));
  EXPECT_FALSE(objects.retired());
}

// As long as an operation is under way, by the marks of its worker.
TEST_F(ObjectsTest, AnOperationKeepsItsRegionUntilItsEnd) {
  struct CoreNamer final : NamesObjects {
    explicit CoreNamer(const Operations& of) : operations(of) {}
    [[nodiscard]] bool names_remote(const RemoteRegion* of) const override {
      return operations.marks().names_remote(of);
    }
    [[nodiscard]] bool names_counter(const OperationCounter* of) const override {
      return operations.marks().names_counter(of);
    }
    const Operations& operations;
  } worker(core.operations);
  objects.add(worker);
  played.done_at_once = false;
  RemoteRegion* const remote = import_own();
  remote->direct = nullptr;
  remote->close_direct();
  remote->memory.opcodes = transport::bit(transport::Opcode::put);
  OperationCounter* const counter = *objects.open_counter(0, false);
  ASSERT_EQ(core.requester.try_block({Kind::put, memory.data(), 8, remote, 0}, {nullptr, nullptr, counter, {}}),
            HEDDLE_POSTED);
  objects.close_remote(remote);
  objects.close_counter(counter);
  EXPECT_TRUE(objects.retired());
  EXPECT_EQ(counter->value(), 0U);
  played.complete(played.posted.at(0).token);
  EXPECT_EQ(progress(), 1);
  EXPECT_FALSE(objects.retired()) << "the end of the operation reclaims them";
  objects.remove(worker);
}

TEST_F(ObjectsTest, TheRegionsOfTheDeadAreClosedForDirectAccess) {
  RemoteRegion* const own = import_own();
  wire::PackedRegion name = *wire::decode_region(objects.pack(*objects.region_around(memory.data(), 1)));
  own->direct_bytes = 10;
  // As if ranks 1 and 2 had been the owners.
  RemoteRegion* const theirs = import_own();
  theirs->rank = 1;
  theirs->direct_bytes = 10;
  RemoteRegion* const others = import_own();
  others->rank = 2;
  others->direct_bytes = 10;
  static_cast<void>(inproc.fail(1));
  objects.note_failures();
  EXPECT_TRUE(theirs->is(RemoteRegion::Barred::failed));
  EXPECT_FALSE(theirs->direct_range(0, 1));
  EXPECT_FALSE(own->is(RemoteRegion::Barred::failed));
  EXPECT_TRUE(own->direct_range(0, 10));
  EXPECT_FALSE(others->is(RemoteRegion::Barred::failed));
  EXPECT_TRUE(others->direct_range(0, 10));
  name.rank = 1;
  EXPECT_LT(objects.import(wire::encode(name)).status(), HEDDLE_DONE) << "nothing of the dead is imported";
}

// ---- Job ----------------------------------------------------------------------------------------

TEST_F(ObjectsTest, TheJobTellsEachFailureAndTheFirstDropOnce) {
  EXPECT_EQ(job.rank(), 0U);
  EXPECT_EQ(job.size(), 3U);
  EXPECT_FALSE(job.failed(2));
  job.environment().log = base::Log(base::Level::info, 0);
  testing::internal::CaptureStderr();
  static_cast<void>(inproc.fail(2));
  EXPECT_TRUE(job.failed(2));
  EXPECT_FALSE(job.failed(1));
  for (int i = 0; i < 3; ++i) objects.note_failures();
  job.report_drop(1, {2, 7}, "it is a test");
  job.report_drop(1, {1, 7}, "it is another");
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("rank 2 has failed or left");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("has failed or left", first + 10), std::string::npos) << said;
  EXPECT_NE(said.find("worker 1 dropped a message from rank 2 worker 7: it is a test"), std::string::npos) << said;
  EXPECT_EQ(said.find("another"), std::string::npos) << said;
}

TEST_F(ObjectsTest, TheJobFindsTheHandlerThatWasRegisteredLast) {
  std::array<int, 2> args{};
  const auto one = [](const heddle_am_arrival*, void*) {};
  const auto other = [](const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); };
  EXPECT_EQ(job.handler(5).fn, nullptr);
  job.register_handler(5, {one, args.data()});
  job.register_handler(6, {other, &args[1]});
  EXPECT_EQ(job.handler(5).fn, static_cast<heddle_am_handler>(one));
  EXPECT_EQ(job.handler(5).arg, args.data());
  job.register_handler(5, {other, &args[1]});
  EXPECT_EQ(job.handler(5).fn, static_cast<heddle_am_handler>(other));
  EXPECT_EQ(job.handler(5).arg, &args[1]);
  EXPECT_EQ(job.handler(4).fn, nullptr);
}

}  // namespace
}  // namespace heddle::engine::objects_test
