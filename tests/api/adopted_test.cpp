// Adopted memory: the program's own memory, which peers map except its edges. Operations on it have
// the same meaning, however the transport treats it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/test_job.hpp"
#include "base/mappings.hpp"

namespace heddle::test::adopted_test {
namespace {

std::size_t page() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void accepted(Status status) {
  ASSERT_GE(status, 0) << heddle_status_name(status) << ": " << heddle_last_error();
}

std::vector<std::byte> pattern(std::size_t bytes, std::size_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + seed * 7 + (i >> 8));
  return data;
}

// Memory as malloc returns it: it begins `before` bytes before a page, and ends `after` bytes
// behind one.
class Memory {
 public:
  explicit Memory(std::size_t before = 4080, std::size_t pages = 5, std::size_t after = 232)
      : before_(before % page()), bytes_(before_ + pages * page() + after), all_((pages + 2) * page()) {
    void* at = mmap(nullptr, all_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
  }
  ~Memory() { munmap(base_, all_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::span<std::byte> span() const { return {base_ + page() - before_, bytes_}; }
  // The bytes between these two offsets are mapped.
  [[nodiscard]] std::size_t first() const { return before_; }
  [[nodiscard]] std::size_t end() const { return before_ + (all_ - 2 * page()); }
  [[nodiscard]] bool shared() const {
    for (const base::MappedRange& range : base::read_mappings()) {
      const auto at = reinterpret_cast<std::uintptr_t>(base_ + page());
      if (at >= range.begin && at < range.end) return range.shared;
    }
    return false;
  }

 private:
  std::size_t before_;
  std::size_t bytes_;
  std::size_t all_;
  std::byte* base_ = nullptr;
};

class Adopted : public testing::TestWithParam<Setting> {
 protected:
  void run(std::uint32_t size, const std::function<void(Context&, Worker&)>& body) {
    const Variables variables(GetParam().variables);
    Job(size, GetParam().transport).run(body);
  }
  // Offsets at which mapped memory and edges meet, and ranges around them.
  static std::vector<std::pair<std::size_t, std::size_t>> ranges(const Memory& memory) {
    const std::size_t first = memory.first();
    const std::size_t end = memory.end();
    const std::size_t bytes = memory.span().size();
    return {{0, bytes},
            {0, 8},
            {first - 8, 8},
            {first - 4, 8},
            {first, 8},
            {first + 8, 1000},
            {end - 8, 8},
            {end - 1, 2},
            {end, 8},
            {bytes - 8, 8},
            {first - 100, 300},
            {end - 100, 300},
            {first - 1, end - first + 2},
            {first, end - first},
            {0, first},
            {end, bytes - end}};
  }
};

TEST_P(Adopted, PutsAndGetsOverAllParts) {
  run(2, [](Context& context, Worker& worker) {
    const Memory memory;
    const auto mine = pattern(memory.span().size(), context.rank());
    std::copy(mine.begin(), mine.end(), memory.span().begin());
    {
      const Region region = context.adopt_memory(memory.span());
      ASSERT_TRUE(std::equal(mine.begin(), mine.end(), memory.span().begin()));
      const auto remote = context.exchange(region);
      const std::uint32_t peer = 1 - context.rank();
      auto theirs = pattern(memory.span().size(), peer);
      std::vector<std::byte> all(theirs.size());
      accepted(worker.get(all, remote[peer].at(0)));
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      ASSERT_TRUE(all == theirs);
      context.barrier(worker);
      for (const auto& [at, bytes] : ranges(memory)) {
        const auto source = pattern(bytes, at + bytes);
        std::copy(source.begin(), source.end(), theirs.begin() + static_cast<std::ptrdiff_t>(at));
        accepted(worker.put(source, remote[peer].at(at)));
        ASSERT_EQ(worker.flush(peer), HEDDLE_DONE);
        std::vector<std::byte> back(bytes);
        accepted(worker.get(back, remote[peer].at(at)));
        accepted(worker.get(all, remote[peer].at(0)));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_TRUE(back == source) << bytes << " bytes at " << at;
        ASSERT_TRUE(all == theirs) << bytes << " bytes at " << at;
      }
      // strided: some blocks lie across an edge
      heddle_strided shape{};
      shape.blocks = 9;
      shape.block_bytes = shape.local_stride = 200;
      shape.remote_stride = 500;
      const std::size_t at = memory.first() - 600;
      const auto source = pattern(std::size_t{9} * 200, 5);
      for (std::size_t i = 0; i < 9; ++i) std::memcpy(theirs.data() + at + i * 500, source.data() + i * 200, 200);
      accepted(heddle_put_strided(worker.handle(), source.data(), remote[peer].at(at), &shape, nullptr));
      ASSERT_EQ(worker.flush(peer), HEDDLE_DONE);
      accepted(worker.get(all, remote[peer].at(0)));
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      ASSERT_TRUE(all == theirs);
      context.barrier(worker);
      // the peer has done the same here
      std::vector<std::byte> here(memory.span().begin(), memory.span().end());
      context.barrier(worker);
      std::vector<std::byte> expected = pattern(memory.span().size(), context.rank());
      for (const auto& [from, bytes] : ranges(memory)) {
        const auto put = pattern(bytes, from + bytes);
        std::copy(put.begin(), put.end(), expected.begin() + static_cast<std::ptrdiff_t>(from));
      }
      for (std::size_t i = 0; i < 9; ++i) std::memcpy(expected.data() + at + i * 500, source.data() + i * 200, 200);
      ASSERT_TRUE(here == expected);
      all = expected;
      context.barrier(worker);
      std::copy(memory.span().begin(), memory.span().end(), here.begin());
      ASSERT_TRUE(here == expected);
    }
    EXPECT_FALSE(memory.shared());
    context.barrier(worker);
  });
}

TEST_P(Adopted, AtomicsAndSignalsInEachPart) {
  run(3, [](Context& context, Worker& worker) {
    constexpr std::uint64_t kAdds = 200;
    const Memory memory(2048, 3, 1024);
    {
      const Region region = context.adopt_memory(memory.span());
      const auto remote = context.exchange(region);
      const std::vector<std::size_t> words = {
          0, memory.first() - 8, memory.first(), memory.first() + 8, memory.end() - 8, memory.end()};
      for (std::uint64_t i = 0; i < kAdds; ++i) {
        for (const std::size_t word : words) {
          accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, remote[0].at(word), 1, nullptr));
        }
        worker.progress();
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      context.barrier(worker);
      for (const std::size_t word : words) {
        std::uint64_t value = 0;
        accepted(worker.get(std::as_writable_bytes(std::span(&value, 1)), remote[0].at(word)));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_EQ(value, 3 * kAdds) << "at " << word;
      }
      context.barrier(worker);
      // Data across the first edge, the signal in each part.
      const std::uint32_t next = (context.rank() + 1) % 3;
      const std::vector<std::size_t> signals = {64, memory.first() + 4096, memory.end() + 64};
      for (std::size_t i = 0; i < signals.size(); ++i) {
        const auto source = pattern(600, i);
        const heddle_signal signal{remote[next].at(signals[i]), 7 + i, HEDDLE_SIGNAL_SET};
        accepted(heddle_put_signal(worker.handle(), source.data(), 600, remote[next].at(memory.first() - 300), &signal,
                                   nullptr));
        auto* word = reinterpret_cast<std::uint64_t*>(memory.span().data() + signals[i]);
        ASSERT_EQ(heddle_signal_wait(worker.handle(), word, HEDDLE_EQ, 7 + i, 60'000'000'000), HEDDLE_DONE);
        ASSERT_TRUE(std::equal(source.begin(), source.end(),
                               memory.span().begin() + static_cast<std::ptrdiff_t>(memory.first()) - 300));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        context.barrier(worker);
      }
    }
    context.barrier(worker);
  });
}

// A vector of the allocator for it: less than a page, and more.
TEST_P(Adopted, VectorsOfWholePages) {
  run(2, [](Context& context, Worker& worker) {
    for (const std::size_t count : {std::size_t{3}, page() / 8 + 5}) {
      Vector<std::uint64_t> mine(count, 10 + context.rank());
      {
        const Region region = context.adopt_memory(mine);
        ASSERT_EQ(region.memory<std::uint64_t>().data(), mine.data());
        ASSERT_EQ(region.memory<std::uint64_t>().size(), count);
        const auto remote = context.exchange(region);
        const RemoteRegion& theirs = remote[1 - context.rank()];
        ASSERT_EQ(theirs.bytes(), 8 * count);
        for (const std::size_t at : {std::size_t{0}, count - 1}) {
          ASSERT_EQ(worker.fetch_add(theirs.at(8 * at), 1), 11U - context.rank());
        }
        const std::uint64_t word = 0;
        EXPECT_EQ(worker.put(bytes_of(word), theirs.at(8 * count)), HEDDLE_ERR_RANGE)
            << "of the page, not of the vector";
        context.barrier(worker);
        EXPECT_EQ(mine.front(), 11U + context.rank());
        EXPECT_EQ(mine.back(), 11U + context.rank());
        context.barrier(worker);
      }
      mine.push_back(1);  // its own again
      EXPECT_EQ(mine.front(), 11U + context.rank());
      context.barrier(worker);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Adopted, testing::ValuesIn(all_settings()), name_of);

// ---- over shm -----------------------------------------------------------------------------------

TEST(AdoptedMemory, ItsWholePagesAreMapped) {
  Job(2, "shm").run([](Context& context, Worker& worker) {
    const Memory memory;
    const Region region = context.adopt_memory(memory.span());
    EXPECT_TRUE(memory.shared());
    const auto remote = context.exchange(region);
    const RemoteRegion& theirs = remote[1 - context.rank()];
    EXPECT_TRUE(theirs.mapped(memory.first(), memory.end() - memory.first()));
    EXPECT_FALSE(theirs.mapped(0, theirs.bytes()));
    EXPECT_FALSE(theirs.mapped(memory.first() - 1, 8));
    EXPECT_FALSE(theirs.mapped(memory.end() - 7, 8));
    EXPECT_FALSE(theirs.mapped(memory.end(), 1));
    EXPECT_NE(theirs.pointer(memory.first()), nullptr);
    EXPECT_NE(theirs.pointer(memory.end() - 1), nullptr);
    EXPECT_EQ(theirs.pointer(memory.first() - 1), nullptr);
    EXPECT_NE(std::string(heddle_last_error()).find("whole pages"), std::string::npos) << heddle_last_error();
    EXPECT_EQ(theirs.pointer(memory.end()), nullptr);
    int mapped = 1;
    EXPECT_EQ(heddle_remote_mapped(theirs.at(8), theirs.bytes(), &mapped), HEDDLE_ERR_RANGE);
    EXPECT_EQ(mapped, 0);
    EXPECT_EQ(heddle_remote_mapped(theirs.at(0), 8, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_remote_mapped({}, 8, &mapped), HEDDLE_ERR_HANDLE);
    // a rank's own memory is all direct; direct operations are done at once
    EXPECT_TRUE(remote[context.rank()].mapped(0, theirs.bytes()));
    const std::uint64_t value = 42;
    EXPECT_EQ(worker.put(std::as_bytes(std::span(&value, 1)), theirs.at(memory.first())), HEDDLE_DONE);
    EXPECT_EQ(worker.put(std::as_bytes(std::span(&value, 1)), theirs.at(memory.end() - 8)), HEDDLE_DONE);
    context.barrier(worker);
    std::uint64_t here = 0;
    std::memcpy(&here, memory.span().data() + memory.first(), 8);
    EXPECT_EQ(here, value);
    context.barrier(worker);
  });
}

// Done at once: the owner is not asked.
TEST(AdoptedMemory, OfWholePagesNeedsNothingOfItsOwner) {
  Job(2, "shm").run([](Context& context, Worker& worker) {
    Vector<std::uint64_t> mine(5);
    const Region region = context.adopt_memory(mine);
    const auto remote = context.exchange(region);
    const RemoteRegion& theirs = remote[1 - context.rank()];
    EXPECT_TRUE(theirs.mapped(0, theirs.bytes()));
    EXPECT_NE(theirs.pointer(0), nullptr);
    for (std::uint64_t at = 0; at < 40; at += 8) {
      std::uint64_t old = 1;
      EXPECT_EQ(worker.try_fetch_add(theirs.at(at), 1, &old), HEDDLE_DONE) << "at " << at;
      EXPECT_EQ(old, 0U);
    }
    context.barrier();
    EXPECT_EQ(std::count(mine.begin(), mine.end(), 1U), 5);
    context.barrier();
  });
}

TEST(AdoptedMemory, WholePagesBeginAtAPage) {
  Job(1, "shm").run([](Context& context, Worker&) {
    Vector<std::byte> memory(3 * page());
    heddle_region region{};
    const auto status = [&](std::size_t skipped, const heddle_region_options& options) {
      return heddle_region_register_with(context.handle(), memory.data() + skipped, 100, &options, &region);
    };
    EXPECT_EQ(status(8, {sizeof(heddle_region_options), 1, 1}), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("does not begin at a page"), std::string::npos);
    EXPECT_EQ(status(0, {sizeof(heddle_region_options), 0, 1}), HEDDLE_ERR_ARGUMENT);
    // a program of a version without this field
    EXPECT_EQ(status(8, {16, 1, 1}), HEDDLE_DONE);
    EXPECT_EQ(heddle_region_release(region), HEDDLE_DONE);
  });
}

// A peer of memory that was adopted within a page learns once that words there need the owner. A
// rank's own words need no peer.
TEST(AdoptedMemory, AWordThatIsNotMappedIsToldOnce) {
  const std::vector<std::pair<const char*, const char*>> settings{{"HEDDLE_LOG", "warn"}};
  const Variables variables(settings);
  testing::internal::CaptureStderr();
  Job(2, "shm").run([](Context& context, Worker& worker) {
    const Memory memory(2048, 3, 1024);
    const Region region = context.adopt_memory(memory.span());
    const auto remote = context.exchange(region);
    if (context.rank() == 0) {
      accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, remote[0].at(0), 1, nullptr));
      accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, remote[1].at(memory.first()), 1, nullptr));
      for (const std::size_t at : {std::size_t{0}, memory.end()}) {
        accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, remote[1].at(at), 1, nullptr));
      }
      EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
    }
    context.barrier(worker);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("an atomic or signal at offset 0 of the region of rank 1 waits until");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("an atomic or signal", first + 10), std::string::npos) << said;
}

TEST(AdoptedMemory, WhatCannotBeAdoptedIsAnError) {
  Job(1, "shm").run([](Context& context, Worker&) {
    const Memory memory;
    const heddle_region_options adopt{sizeof adopt, 1, 0};
    const auto status = [&](void* address, std::size_t bytes) {
      heddle_region region{};
      return heddle_region_register_with(context.handle(), address, bytes, &adopt, &region);
    };
    void* const at = memory.span().data();
    EXPECT_EQ(status(nullptr, 8), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(status(at, 0), HEDDLE_ERR_SIZE);
    EXPECT_EQ(status(at, ~std::size_t{0}), HEDDLE_ERR_SIZE);
    EXPECT_EQ(status(at, std::size_t{1} << 40), HEDDLE_ERR_UNSUPPORTED);
    const Region region = context.register_memory(memory.span().first(100));
    EXPECT_EQ(status(at, 3 * page()), HEDDLE_ERR_ARGUMENT) << "it is a region already";
    EXPECT_NE(std::string(heddle_last_error()).find("overlaps a region"), std::string::npos) << heddle_last_error();
    const heddle_region_options none{sizeof none, 0, 0};
    heddle_region plain{};
    EXPECT_EQ(heddle_region_register_with(context.handle(), at, 3 * page(), &none, &plain), HEDDLE_DONE);
    EXPECT_FALSE(memory.shared());
    EXPECT_EQ(heddle_region_release(plain), HEDDLE_DONE);
  });
}

TEST(AdoptedMemory, IsPrivateAgainWhenItsContextIsLeft) {
  const Memory memory;
  const auto mine = pattern(memory.span().size(), 3);
  std::copy(mine.begin(), mine.end(), memory.span().begin());
  const Job job(1, "shm");
  {
    const Context context = job.join(0);
    const heddle_region_options adopt{sizeof adopt, 1, 0};
    heddle_region region{};
    ASSERT_EQ(
        heddle_region_register_with(context.handle(), memory.span().data(), memory.span().size(), &adopt, &region),
        HEDDLE_DONE);
    EXPECT_TRUE(memory.shared());
  }
  EXPECT_FALSE(memory.shared());
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), memory.span().begin()));
}

TEST(AdoptedMemory, OfADeadPeerIsNotMapped) {
  const Job job(2, "shm");
  const Context one = job.join(0);
  const Context two = job.join(1);
  Worker worker = one.open_worker();
  const Worker other = two.open_worker();
  const Memory memory;
  const Region region = two.adopt_memory(memory.span());
  const RemoteRegion remote = one.unpack(region.pack());
  ASSERT_TRUE(remote.mapped(memory.first(), 8));
  ASSERT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
  const std::uint64_t value = 1;
  const auto bytes = std::as_bytes(std::span(&value, 1));
  for (const std::size_t at : {std::size_t{0}, memory.first() - 4, memory.first(), memory.end()}) {
    Status status = HEDDLE_DONE;
    for (int i = 0; i < 1000 && status >= 0; ++i) {
      status = worker.put(bytes, remote.at(at));
      if (status >= 0) status = heddle_flush(worker.handle(), 1);
    }
    EXPECT_EQ(status, HEDDLE_ERR_PEER_FAILED) << "at " << at;
  }
  EXPECT_FALSE(remote.mapped(memory.first(), 8));
}

}  // namespace
}  // namespace heddle::test::adopted_test
