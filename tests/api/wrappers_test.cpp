// heddle.hpp: every wrapper does what its C function does, and every owner closes its handle once.
#include <gtest/gtest.h>

#include <array>
#include <coroutine>
#include <cstring>
#include <type_traits>

#include "api/test_job.hpp"

namespace heddle::test::wrappers_test {
namespace {

// ---- owners -------------------------------------------------------------------------------------

template <class Owner>
void expect_one_owner(Owner first, Owner second, bool (*open)(decltype(first.handle()))) {
  static_assert(!std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>);
  static_assert(std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>);
  const auto one = first.handle();
  const auto two = second.handle();
  ASSERT_TRUE(first && second && open(one) && open(two));
  Owner moved(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is left is specified
  EXPECT_EQ(first.handle().id, 0U);
  EXPECT_EQ(moved.handle().id, one.id);
  EXPECT_TRUE(open(one)) << "moving closed it";
  moved = std::move(second);
  EXPECT_FALSE(open(one)) << "assigning closes what was held";
  EXPECT_TRUE(open(two));
  Owner& same = moved;
  moved = std::move(same);
  EXPECT_TRUE(open(two)) << "assigning to itself closed it";
  {
    const Owner inner(std::move(moved));
  }
  EXPECT_FALSE(open(two)) << "the destructor did not close it";
  EXPECT_FALSE(Owner{});
}

bool counter_open(heddle_counter handle) {
  std::uint64_t value = 0;
  return heddle_counter_read(handle, &value) == HEDDLE_DONE;
}
bool region_open(heddle_region handle) {
  return heddle_region_address(handle, nullptr, nullptr) == HEDDLE_DONE;
}
bool remote_open(heddle_remote_region handle) {
  std::uint32_t rank = 0;
  return heddle_remote_region_rank(handle, &rank) == HEDDLE_DONE;
}
bool worker_open(heddle_worker handle) {
  return heddle_worker_progress(handle) >= 0;
}
bool context_open(heddle_context handle) {
  std::uint32_t rank = 0;
  return heddle_context_rank(handle, &rank) == HEDDLE_DONE;
}

TEST(Owners, CloseTheirHandleOnce) {
  const Context context = Context::join();
  const Region region = context.alloc(64);
  expect_one_owner(context.counter(), context.counter(), counter_open);
  expect_one_owner(context.alloc(64), context.alloc(64), region_open);
  expect_one_owner(context.unpack(region.pack()), context.unpack(region.pack()), remote_open);
  expect_one_owner(context.open_worker(), context.open_worker(), worker_open);
  expect_one_owner(Context::join(), Context::join(), context_open);
}

TEST(Owners, GiveTheirHandleUp) {
  const Context context = Context::join();
  heddle_counter handle{};
  {
    Counter counter = context.counter();
    handle = counter.release();
    EXPECT_FALSE(counter);
  }
  EXPECT_TRUE(counter_open(handle));
  const Counter again(handle);
}

TEST(Errors, CarryStatusAndMessage) {
  const Context context = Context::join();
  try {
    static_cast<void>(context.alloc(0));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), HEDDLE_ERR_SIZE);
    EXPECT_NE(std::string(error.what()).find("HEDDLE_ERR_SIZE: a region of 0 bytes"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(check(HEDDLE_AGAIN), HEDDLE_AGAIN);
  EXPECT_THROW(static_cast<void>(RemoteRegion().rank()), Error);
  EXPECT_THROW(static_cast<void>(RemoteRegion().bytes()), Error);
  EXPECT_THROW(static_cast<void>(Worker().index()), Error);
  EXPECT_THROW(static_cast<void>(Context().size()), Error);
}

// ---- what they wrap -----------------------------------------------------------------------------

class Wrappers : public testing::Test {
 protected:
  [[nodiscard]] std::uint64_t word(std::size_t index) const { return region_.memory<std::uint64_t>()[index]; }

  Context context_ = Context::join();
  Worker worker_ = context_.open_worker();
  Region region_ = context_.alloc(4096);
  RemoteRegion remote_ = context_.unpack(region_.pack());
};

TEST_F(Wrappers, OfContextsAndRegions) {
  EXPECT_EQ(context_.rank(), 0U);
  EXPECT_EQ(context_.size(), 1U);
  EXPECT_EQ(context_.peer_status(0), HEDDLE_DONE);
  EXPECT_EQ(context_.peer_status(1), HEDDLE_ERR_RANK);
  context_.barrier();
  context_.barrier(worker_);
  const std::uint32_t mine = 17;
  const std::vector<std::byte> all = context_.exchange(bytes_of(mine));
  ASSERT_EQ(all.size(), sizeof mine);
  EXPECT_EQ(std::memcmp(all.data(), &mine, sizeof mine), 0);
  const auto remotes = context_.exchange(region_);
  ASSERT_EQ(remotes.size(), 1U);
  EXPECT_EQ(remotes[0].rank(), 0U);
  EXPECT_EQ(remotes[0].bytes(), 4096U);
  EXPECT_EQ(static_cast<std::byte*>(remotes[0].pointer(8)) - static_cast<std::byte*>(remotes[0].pointer()), 8);
  EXPECT_EQ(remotes[0].pointer(4097), nullptr);
  std::array<std::byte, 100> memory{};
  const Region registered = context_.register_memory(memory);
  EXPECT_EQ(registered.memory().data(), memory.data());
  EXPECT_EQ(registered.memory<std::uint64_t>().size(), 12U);
  EXPECT_EQ(Context().abort(1), HEDDLE_ERR_HANDLE);
}

TEST_F(Wrappers, OfWorkers) {
  EXPECT_EQ(worker_.index(), 0U);
  EXPECT_EQ(context_.open_worker(HEDDLE_SHARING_EXCLUSIVE).index(), 1U);
  EXPECT_EQ(worker_.progress(), 0);
  EXPECT_EQ(worker_.stats().polls, 1U);
  EXPECT_EQ(worker_.fence(), HEDDLE_DONE);
  EXPECT_EQ(worker_.flush(0), HEDDLE_DONE);
  EXPECT_EQ(worker_.try_flush(0), HEDDLE_DONE);
  EXPECT_EQ(worker_.try_flush(3), HEDDLE_ERR_RANK);
  EXPECT_EQ(worker_.quiet(), HEDDLE_DONE);
  EXPECT_EQ(worker_.try_quiet(), HEDDLE_DONE);
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = HEDDLE_SHARING_SHARED;
  Worker shared = context_.open_worker(options);
  EXPECT_EQ(context_.progress(), 0);
  EXPECT_EQ(shared.stats().polls, 1U);
  options.size = 1;
  EXPECT_THROW((void)context_.open_worker(options), Error);
}

TEST_F(Wrappers, OfPutsAndGets) {
  std::array<std::uint64_t, 4> source{1, 2, 3, 4};
  std::array<std::uint64_t, 4> back{};
  EXPECT_EQ(worker_.try_put(bytes_of(source), remote_.at(0)), HEDDLE_DONE);
  EXPECT_EQ(word(3), 4U);
  EXPECT_EQ(worker_.put(bytes_of(source[1]), remote_.at(0)), HEDDLE_DONE);
  EXPECT_EQ(word(0), 2U);
  EXPECT_EQ(worker_.try_get(writable_bytes_of(back), remote_.at(0)), HEDDLE_DONE);
  EXPECT_EQ(back[0] + back[3], 6U);
  EXPECT_EQ(worker_.get(writable_bytes_of(back[0]), remote_.at(16)), HEDDLE_DONE);
  EXPECT_EQ(back[0], 3U);
  const heddle_signal set{remote_.at(800), 5, HEDDLE_SIGNAL_SET};
  const heddle_signal add{remote_.at(800), 6, HEDDLE_SIGNAL_ADD};
  EXPECT_EQ(worker_.try_put_signal(bytes_of(source), remote_.at(64), set), HEDDLE_DONE);
  EXPECT_EQ(word(100), 5U);
  EXPECT_EQ(worker_.put_signal(bytes_of(source), remote_.at(128), add), HEDDLE_DONE);
  EXPECT_EQ(word(100), 11U);
  EXPECT_EQ(word(16), 1U);
  EXPECT_EQ(worker_.wait(region_.memory<std::uint64_t>()[100], HEDDLE_EQ, 11, 1'000'000), HEDDLE_DONE);
}

TEST_F(Wrappers, OfShapesAndLists) {
  const heddle_strided shape{8, 2, 8, 32};
  std::array<std::uint64_t, 2> source{7, 8};
  std::array<std::uint64_t, 2> back{};
  EXPECT_EQ(worker_.try_put_strided(source.data(), remote_.at(0), shape), HEDDLE_DONE);
  EXPECT_EQ(word(4), 8U);
  EXPECT_EQ(worker_.put_strided(source.data(), remote_.at(8), shape), HEDDLE_DONE);
  EXPECT_EQ(word(5), 8U);
  EXPECT_EQ(worker_.try_get_strided(back.data(), remote_.at(0), shape), HEDDLE_DONE);
  EXPECT_EQ(back, source);
  back = {};
  EXPECT_EQ(worker_.get_strided(back.data(), remote_.at(8), shape), HEDDLE_DONE);
  EXPECT_EQ(back, source);
  const std::array<heddle_segment, 2> put{{{source.data(), 8, remote_.at(512)}, {&source[1], 8, remote_.at(640)}}};
  const std::array<heddle_segment, 2> get{{{back.data(), 8, remote_.at(512)}, {&back[1], 8, remote_.at(640)}}};
  EXPECT_EQ(worker_.try_put_list(put), HEDDLE_DONE);
  back = {};
  EXPECT_EQ(worker_.try_get_list(get), HEDDLE_DONE);
  EXPECT_EQ(back, source);
  source = {9, 10};
  EXPECT_EQ(worker_.put_list(put), HEDDLE_DONE);
  EXPECT_EQ(worker_.get_list(get), HEDDLE_DONE);
  EXPECT_EQ(back, source);
}

TEST_F(Wrappers, OfAtomics) {
  std::uint64_t old = 99;
  EXPECT_EQ(worker_.try_atomic(HEDDLE_ADD64, remote_.at(0), 3), HEDDLE_DONE);
  EXPECT_EQ(worker_.atomic(HEDDLE_OR64, remote_.at(0), 4), HEDDLE_DONE);
  EXPECT_EQ(worker_.try_fetch_add(remote_.at(0), 1, &old), HEDDLE_DONE);
  EXPECT_EQ(old, 7U);
  EXPECT_EQ(worker_.try_fetch_atomic(HEDDLE_SWAP64, remote_.at(0), {20, 0, &old}), HEDDLE_DONE);
  EXPECT_EQ(old, 8U);
  EXPECT_EQ(worker_.fetch_atomic(HEDDLE_COMPARE_SWAP64, remote_.at(0), {30, 20, &old}), HEDDLE_DONE);
  EXPECT_EQ(old, 20U);
  EXPECT_EQ(word(0), 30U);
}

TEST_F(Wrappers, OfMessages) {
  int received = 0;
  context_.register_am(3, [](const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); }, &received);
  EXPECT_EQ(worker_.try_am({0, 0}, {3, 0, nullptr, nullptr, 0}), HEDDLE_DONE);
  EXPECT_EQ(worker_.am({0, 0}, {3, 0, nullptr, nullptr, 0}), HEDDLE_DONE);
  within_time([&] { return received >= 2; }, [&] { worker_.progress(); });
  EXPECT_EQ(received, 2);
}

// A coroutine that runs by itself.
struct Detached {
  struct promise_type {  // NOLINT(readability-identifier-naming): the language's name
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::abort(); }
  };
};

// The results are named: g++ 12 loses the awaited object when `co_await` stands inside a larger
// condition.
Detached exchange_values(Worker& worker, heddle_remote target, std::array<std::uint64_t, 3>* values, int* steps) {
  const Status put = co_await worker.async_put(bytes_of((*values)[0]), target);
  *steps += put == HEDDLE_DONE ? 1 : 100;
  const Status get = co_await worker.async_get(writable_bytes_of((*values)[1]), target);
  *steps += get == HEDDLE_DONE ? 1 : 100;
  const Status add = co_await worker.async_fetch_add(target, 5, &(*values)[2]);
  *steps += add == HEDDLE_DONE ? 1 : 100;
}

TEST(Awaitables, ResumeWhetherDoneAtOnceOrLater) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    Job(1, transport).run([](Context& context, Worker& worker) {
      const Region region = context.alloc(64);
      const auto remote = context.exchange(region);
      std::array<std::uint64_t, 3> values{40, 0, 0};
      int steps = 0;
      exchange_values(worker, remote[0].at(8), &values, &steps);
      within_time([&] { return steps >= 3; }, [&] { worker.progress(); });
      EXPECT_EQ(steps, 3);
      EXPECT_EQ(values[1], 40U);
      EXPECT_EQ(values[2], 40U);
      EXPECT_EQ(region.memory<std::uint64_t>()[1], 45U);
    });
  }
}

TEST(Counters, CountResetAndWait) {
  Job(1, "loopback-messages").run([](Context& context, Worker& worker) {
    const Region region = context.alloc(64);
    const auto remote = context.exchange(region);
    const Counter counter = context.counter(worker);
    const heddle_completion completion = counter.completion(HEDDLE_WHEN_LOCAL);
    EXPECT_EQ(completion.when, HEDDLE_WHEN_LOCAL);
    EXPECT_EQ(completion.counter.id, counter.handle().id);
    const std::uint64_t value = 1;
    ASSERT_EQ(worker.put(bytes_of(value), remote[0].at(0), &completion), HEDDLE_POSTED);
    EXPECT_EQ(worker.wait(counter, 1, 1'000'000'000), HEDDLE_DONE);
    EXPECT_EQ(counter.value(), 1U);
    EXPECT_EQ(counter.status(), HEDDLE_DONE);
    EXPECT_EQ(counter.reset(), HEDDLE_DONE);
    EXPECT_EQ(counter.value(), 0U);
    EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
  });
}

}  // namespace
}  // namespace heddle::test::wrappers_test
