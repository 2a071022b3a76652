// The cache without the kernel: over memory that nobody unmaps, where only forget() reports; and
// compared with a naive model of itself.
#include "memory/registration_cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"

namespace heddle::memory::registration_cache_test {
namespace {

const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uint64_t kBase = std::uint64_t{1} << 40;  // never touched

// Hardware with room for `room` registrations. It knows what is registered, and fails if something
// is deregistered twice.
class Hardware final : public Registrar {
 public:
  struct Known {
    std::uint64_t begin;
    std::uint64_t end;
    Access access;
  };
  base::Status register_memory(std::byte* begin, std::uint64_t bytes, Access access, std::uint64_t* handle) override {
    const auto at = reinterpret_cast<std::uint64_t>(begin);
    EXPECT_EQ(at % kPage, 0u);
    EXPECT_EQ(bytes % kPage, 0u);
    ++asked;
    if (busy) return HEDDLE_AGAIN;
    if (access == Access::write && at < read_only_end && at + bytes > read_only_begin) return read_only_status;
    if (at < bad_end && at + bytes > bad_begin) return HEDDLE_ERR_RANGE;
    if (known.size() == room) return HEDDLE_ERR_NO_MEMORY;
    *handle = ++last;
    known[last] = {at, at + bytes, access};
    return HEDDLE_DONE;
  }
  void deregister(std::uint64_t handle) override {
    EXPECT_EQ(known.erase(handle), 1u) << "never registered, or deregistered twice";
  }

  std::map<std::uint64_t, Known> known;
  std::uint64_t last = 0;
  std::uint64_t asked = 0;
  std::size_t room = ~std::size_t{0};
  std::uint64_t read_only_begin = 0, read_only_end = 0;
  base::Status read_only_status = HEDDLE_ERR_ARGUMENT;
  std::uint64_t bad_begin = 0, bad_end = 0;
  bool busy = false;
};

class RegistrationCacheTest : public testing::Test {
 protected:
  static RegistrationCache::Options options(std::uint32_t entries, std::uint64_t bytes = std::uint64_t{1} << 40) {
    RegistrationCache::Options made;
    made.entries = entries;
    made.bytes = bytes;
    return made;
  }
  void open(const RegistrationCache::Options& wanted) {
    auto opened = UnmapWatch::open(UnmapWatch::Way::told);
    ASSERT_TRUE(opened.ok()) << base::last_message();
    watch = *opened;
    cache = std::make_unique<RegistrationCache>(hardware, watch, wanted);
  }
  static const void* at(std::uint64_t place) {
    return reinterpret_cast<const void*>(kBase + place);  // NOLINT(performance-no-int-to-ptr)
  }
  // Leases [place, place + bytes), and checks that the hardware has a registration that covers it.
  base::Status acquire(std::uint64_t place, std::uint64_t bytes, RegistrationCache::Lease* lease,
                       Access access = Access::write) {
    const base::Status status = cache->acquire(at(place), bytes, access, lease);
    if (status != HEDDLE_DONE) return status;
    const auto found = hardware.known.find(lease->handle);
    if (found == hardware.known.end()) {
      ADD_FAILURE() << "a registration that the hardware does not know";
      return status;
    }
    EXPECT_EQ(found->second.begin + lease->offset, kBase + place);
    EXPECT_LE(kBase + place + bytes, found->second.end);
    EXPECT_TRUE(access == Access::read || found->second.access == Access::write);
    return status;
  }
  void use(std::uint64_t place, std::uint64_t bytes, Access access = Access::write) {
    RegistrationCache::Lease lease{};
    ASSERT_EQ(acquire(place, bytes, &lease, access), HEDDLE_DONE) << base::last_message();
    cache->release(lease.entry);
  }
  std::uint64_t hits_of(std::uint64_t place, std::uint64_t bytes, Access access = Access::write) {
    const std::uint64_t before = cache->counters().hits;
    use(place, bytes, access);
    return cache->counters().hits - before;
  }

  Hardware hardware;
  std::shared_ptr<UnmapWatch> watch;
  std::unique_ptr<RegistrationCache> cache;
};

TEST_F(RegistrationCacheTest, KeepsWholePagesAndServesPartsOfThem) {
  open(options(8));
  use(100, kPage);
  EXPECT_EQ(hardware.known.begin()->second.begin, kBase);
  EXPECT_EQ(hardware.known.begin()->second.end, kBase + 2 * kPage);
  EXPECT_EQ(hits_of(100, kPage), 1u);
  EXPECT_EQ(hits_of(0, 1), 1u);
  EXPECT_EQ(hits_of(2 * kPage - 1, 1), 1u);
  EXPECT_EQ(hits_of(0, 2 * kPage), 1u);
  EXPECT_EQ(hits_of(2 * kPage, 1), 0u);  // the page behind
  EXPECT_EQ(cache->counters().misses, 2u);
  EXPECT_EQ(hardware.asked, 2u);
}

TEST_F(RegistrationCacheTest, JoinsWhatOverlaps) {
  open(options(8));
  use(0, 2 * kPage);
  use(3 * kPage, kPage);
  use(kPage, 3 * kPage);  // overlaps both
  ASSERT_EQ(hardware.known.size(), 1u);
  EXPECT_EQ(hardware.known.begin()->second.begin, kBase);
  EXPECT_EQ(hardware.known.begin()->second.end, kBase + 4 * kPage);
  EXPECT_EQ(hits_of(0, 4 * kPage), 1u);
  EXPECT_EQ(cache->kept_bytes(), 4 * kPage);
  EXPECT_EQ(watch->watched_pieces(), 1u);
}

TEST_F(RegistrationCacheTest, JoinsNothingThatCannotBeRegisteredTogether) {
  open(options(8));
  use(0, 2 * kPage);
  hardware.bad_begin = kBase;
  hardware.bad_end = kBase + kPage;  // gone since
  use(kPage, 2 * kPage);
  EXPECT_EQ(hits_of(kPage, 2 * kPage), 1u);
  EXPECT_EQ(hardware.known.size(), 1u);
}

TEST_F(RegistrationCacheTest, DeregistersTheLeastRecentlyUsedByEntries) {
  open(options(3));
  for (std::uint64_t i = 0; i < 3; ++i) use(2 * i * kPage, 1);
  use(0, 1);
  use(6 * kPage, 1);  // evicts the entry at 2 pages
  EXPECT_EQ(cache->counters().evictions, 1u);
  EXPECT_EQ(hits_of(0, 1) + hits_of(4 * kPage, 1) + hits_of(6 * kPage, 1), 3u);
  EXPECT_EQ(hits_of(2 * kPage, 1), 0u);
  EXPECT_EQ(cache->kept_entries(), 3u);
}

TEST_F(RegistrationCacheTest, DeregistersTheLeastRecentlyUsedByBytes) {
  open(options(8, 8 * kPage));
  use(0, 3 * kPage);
  use(10 * kPage, 3 * kPage);
  use(20 * kPage, 3 * kPage);
  EXPECT_EQ(cache->kept_bytes(), 6 * kPage);
  EXPECT_EQ(hits_of(0, 1), 0u);
  use(100 * kPage, 9 * kPage);  // more than may be kept
  EXPECT_EQ(cache->counters().passing, 1u);
  EXPECT_LE(cache->kept_bytes(), 8 * kPage);
  EXPECT_EQ(hardware.known.size(), cache->kept_entries());
}

TEST_F(RegistrationCacheTest, WhatOperationsUseStays) {
  open(options(2));
  RegistrationCache::Lease first{};
  RegistrationCache::Lease second{};
  RegistrationCache::Lease third{};
  ASSERT_EQ(acquire(0, 1, &first), HEDDLE_DONE);
  ASSERT_EQ(acquire(2 * kPage, 1, &second), HEDDLE_DONE);
  ASSERT_EQ(acquire(4 * kPage, 1, &third), HEDDLE_DONE);  // for one operation: no room to keep it
  EXPECT_EQ(cache->counters().passing, 1u);
  EXPECT_EQ(hardware.known.size(), 3u);
  cache->release(third.entry);
  EXPECT_EQ(hardware.known.size(), 2u);
  cache->release(first.entry);
  cache->release(second.entry);
  EXPECT_EQ(hits_of(0, 1) + hits_of(2 * kPage, 1), 2u);
}

TEST_F(RegistrationCacheTest, SaysAgainWhenEverythingIsUnderWay) {
  open(options(2));
  std::vector<RegistrationCache::Lease> leases;
  RegistrationCache::Lease lease{};
  base::Status status = HEDDLE_DONE;
  while (leases.size() < 1000 && (status = acquire(2 * leases.size() * kPage, 1, &lease)) == HEDDLE_DONE)
    leases.push_back(lease);
  EXPECT_EQ(status, HEDDLE_AGAIN);
  EXPECT_EQ(hardware.known.size(), leases.size());
  cache->release(leases.back().entry);
  ASSERT_EQ(acquire(2 * leases.size() * kPage, 1, &leases.back()), HEDDLE_DONE);
  for (const auto& out : leases) cache->release(out.entry);
  EXPECT_EQ(hardware.known.size(), 2u);
}

TEST_F(RegistrationCacheTest, GivesUpNothingWhenTheHardwareIsBusy) {
  open(options(8));
  for (std::uint64_t i = 0; i < 3; ++i) use(2 * i * kPage, 1);
  hardware.busy = true;
  RegistrationCache::Lease lease{};
  const std::uint64_t asked = hardware.asked;
  EXPECT_EQ(acquire(20 * kPage, 1, &lease, Access::read), HEDDLE_AGAIN);
  EXPECT_EQ(hardware.asked, asked + 1) << "nor for less";
  EXPECT_EQ(hardware.known.size(), 3u);
  EXPECT_EQ(watch->watched_pieces(), 3u);
  EXPECT_EQ(hits_of(0, 1), 1u);
  hardware.busy = false;
  use(20 * kPage, 1);
  EXPECT_EQ(hardware.known.size(), 4u);
}

TEST_F(RegistrationCacheTest, GivesUpWhatIsIdleWhenTheHardwareIsFull) {
  open(options(8));
  hardware.room = 2;
  for (std::uint64_t i = 0; i < 5; ++i) use(2 * i * kPage, 1);
  EXPECT_EQ(hardware.known.size(), 2u);
  RegistrationCache::Lease first{};
  RegistrationCache::Lease second{};
  RegistrationCache::Lease third{};
  ASSERT_EQ(acquire(0, 1, &first), HEDDLE_DONE);
  ASSERT_EQ(acquire(2 * kPage, 1, &second), HEDDLE_DONE);
  EXPECT_EQ(acquire(4 * kPage, 1, &third), HEDDLE_AGAIN);
  cache->release(first.entry);
  EXPECT_EQ(acquire(4 * kPage, 1, &third), HEDDLE_DONE);
  cache->release(second.entry);
  cache->release(third.entry);
  cache->drop_idle();
  hardware.room = 0;
  EXPECT_EQ(acquire(4 * kPage, 1, &third), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(watch->watched_pieces(), 0u);
}

TEST_F(RegistrationCacheTest, MemoryThatMayOnlyBeReadIsRegisteredSo) {
  open(options(8));
  hardware.read_only_begin = kBase;
  hardware.read_only_end = kBase + kPage;
  use(0, 10, Access::read);
  EXPECT_EQ(hits_of(0, 10, Access::read), 1u);
  RegistrationCache::Lease lease{};
  EXPECT_EQ(acquire(0, 10, &lease, Access::write), HEDDLE_ERR_ARGUMENT);
  hardware.read_only_end = 0;  // mprotect
  EXPECT_EQ(hits_of(0, 10, Access::write), 0u);
  EXPECT_EQ(hits_of(0, 10, Access::write), 1u);
  EXPECT_EQ(hardware.known.size(), 1u);
}

TEST_F(RegistrationCacheTest, HardwareThatCallsEverythingNoMemoryIsAskedForReadingBeforeOthersGo) {
  open(options(8));
  use(8 * kPage, 1);
  hardware.read_only_begin = kBase;
  hardware.read_only_end = kBase + kPage;
  hardware.read_only_status = HEDDLE_ERR_NO_MEMORY;
  use(0, 10, Access::read);
  EXPECT_EQ(hits_of(0, 10, Access::read), 1u);
  EXPECT_EQ(hits_of(8 * kPage, 1), 1u);
  RegistrationCache::Lease lease{};
  EXPECT_EQ(acquire(0, 10, &lease, Access::write), HEDDLE_ERR_NO_MEMORY);
}

TEST_F(RegistrationCacheTest, OffMeansThatEachOperationRegisters) {
  RegistrationCache::Options off = options(8);
  off.keep = false;
  open(off);
  for (int i = 0; i < 3; ++i) use(0, 10);
  EXPECT_EQ(cache->counters().passing, 3u);
  EXPECT_EQ(cache->counters().hits, 0u);
  EXPECT_TRUE(hardware.known.empty());
  EXPECT_FALSE(cache->keeps());
  cache = std::make_unique<RegistrationCache>(hardware, nullptr, options(8));  // nobody watches
  use(0, 10);
  use(0, 10);
  EXPECT_EQ(cache->counters().passing, 2u);
  EXPECT_TRUE(hardware.known.empty());
}

TEST_F(RegistrationCacheTest, RejectsWhatIsNoMemory) {
  open(options(8));
  RegistrationCache::Lease lease{};
  EXPECT_EQ(cache->acquire(at(0), 0, Access::read, &lease), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(cache->acquire(at(0), ~std::uint64_t{0}, Access::read, &lease), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(cache->acquire(at(0), ~std::uint64_t{0} - kBase, Access::read, &lease), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(hardware.asked, 0u);
}

TEST_F(RegistrationCacheTest, WhatHasGoneIsNotUsedAgain) {
  open(options(8));
  RegistrationCache::Lease lease{};
  ASSERT_EQ(acquire(0, 4 * kPage, &lease), HEDDLE_DONE);
  const std::uint64_t stale = lease.handle;
  watch->forget(kBase + kPage, kBase + 2 * kPage);
  RegistrationCache::Lease fresh{};
  ASSERT_EQ(acquire(0, kPage, &fresh), HEDDLE_DONE);
  EXPECT_NE(fresh.handle, stale);
  EXPECT_EQ(hardware.known.count(stale), 1u);  // an operation is using it
  cache->release(lease.entry);
  EXPECT_EQ(hardware.known.count(stale), 0u);
  cache->release(fresh.entry);
  watch->forget(kBase + kPage, kBase + 2 * kPage);  // not what is kept now
  EXPECT_EQ(hits_of(0, kPage), 1u);
  EXPECT_EQ(cache->counters().invalidations, 1u);
  cache->forget(at(kPage - 1), 1);
  EXPECT_EQ(hits_of(0, kPage), 0u);
  EXPECT_EQ(cache->counters().invalidations, 2u);
}

TEST_F(RegistrationCacheTest, WhoHasMissedEventsForgetsEverything) {
  open(options(8));
  use(0, 1);
  use(8 * kPage, 1);
  for (std::uint64_t i = 0; i <= UnmapWatch::Log::kEvents; ++i) watch->forget(kBase + 100 * kPage, kBase + 101 * kPage);
  EXPECT_EQ(hits_of(0, 1) + hits_of(8 * kPage, 1), 0u);
  EXPECT_EQ(cache->counters().invalidations, 2u);
  // As many events as the log has room for are read one by one.
  for (std::uint64_t i = 0; i < UnmapWatch::Log::kEvents; ++i) watch->forget(kBase + 100 * kPage, kBase + 101 * kPage);
  EXPECT_EQ(hits_of(0, 1) + hits_of(8 * kPage, 1), 2u);
}

TEST_F(RegistrationCacheTest, SeveralCachesWatchTheSameMemory) {
  open(options(8));
  Hardware other_hardware;
  RegistrationCache other(other_hardware, watch, options(8));
  use(0, 2 * kPage);
  RegistrationCache::Lease lease{};
  ASSERT_EQ(other.acquire(at(kPage), 2 * kPage, Access::read, &lease), HEDDLE_DONE);
  EXPECT_EQ(watch->watched_pieces(), 3u);
  cache->drop_idle();
  EXPECT_EQ(watch->watched_pieces(), 2u);
  watch->forget(kBase, kBase + 2 * kPage);
  other.release(lease.entry);
  ASSERT_EQ(other.acquire(at(kPage), 2 * kPage, Access::read, &lease), HEDDLE_DONE);
  EXPECT_EQ(other.counters().invalidations, 1u);
  other.release(lease.entry);
  other.drop_idle();
  EXPECT_EQ(watch->watched_pieces(), 0u);
  EXPECT_TRUE(other_hardware.known.empty());
}

TEST_F(RegistrationCacheTest, CountsInWords) {
  open(options(8));
  EXPECT_EQ(cache->describe(), "");
  use(0, kPage);
  use(0, kPage);
  use(8 * kPage, kPage);
  watch->forget(kBase, kBase + 1);
  use(0, kPage);
  EXPECT_EQ(cache->describe(), "1 hits, 3 misses, 0 for one operation, 0 evicted, 1 unmapped, " +
                                   std::to_string(2 * kPage / 1024) + " KiB kept");
}

TEST_F(RegistrationCacheTest, ClosingDeregistersEverything) {
  open(options(8));
  for (std::uint64_t i = 0; i < 5; ++i) use(2 * i * kPage, 1);
  cache.reset();
  EXPECT_TRUE(hardware.known.empty());
  EXPECT_EQ(watch->watched_pieces(), 0u);
}

// If the program promises that it unmaps nothing, the kernel is not asked; the reports of forget()
// count all the same.
TEST_F(RegistrationCacheTest, WithoutAskingTheKernel) {
  const auto config = base::Config::read(base::Config::Overrides{{"HEDDLE_REG_CACHE", "watch=0"}});
  ASSERT_TRUE(config.ok()) << base::last_message();
  const auto unwatched = RegistrationCache::Options::from(*config);
  EXPECT_FALSE(unwatched.watch);
  const base::Log log(base::Level::error, 0);
  watch = RegistrationCache::watch_for(unwatched, log);
  ASSERT_NE(watch, nullptr);
  EXPECT_EQ(watch->way(), UnmapWatch::Way::told);
  EXPECT_EQ(RegistrationCache::watch_for(unwatched, log), watch) << "one for the process";
  cache = std::make_unique<RegistrationCache>(hardware, watch, unwatched);
  EXPECT_TRUE(cache->keeps());
  use(0, 64);
  use(0, 64);
  EXPECT_EQ(cache->counters().hits, 1u);
  watch->forget(kBase, kBase + kPage);
  use(0, 64);
  EXPECT_EQ(cache->counters().misses, 2u);
  EXPECT_EQ(cache->counters().invalidations, 1u);
  cache.reset();
}

// ---- against a naive model ----------------------------------------------------------------------

// The cache in its simplest form, without regard to speed.
class Naive {
 public:
  struct Entry {
    std::uint64_t begin;
    std::uint64_t end;
    bool kept;
    std::uint64_t users;
    std::uint64_t used;  // when it was last asked for
  };
  Naive(std::size_t entries, std::uint64_t bytes) : entries_(entries), bytes_(bytes) {}

  // Returns the entry's number.
  std::size_t acquire(std::uint64_t begin, std::uint64_t end) {
    for (auto& [number, entry] : all_) {
      if (!entry.kept || entry.begin > begin || entry.end < end) continue;
      ++counters.hits;
      ++entry.users;
      entry.used = ++time_;
      return number;
    }
    begin -= begin % kPage;
    end = (end + kPage - 1) / kPage * kPage;
    const bool keep = end - begin <= bytes_ && make_room(&begin, &end);
    ++(keep ? counters.misses : counters.passing);
    all_[++last_] = {begin, end, keep, 1, ++time_};
    return last_;
  }
  void release(std::size_t number) {
    Entry& entry = all_.at(number);
    if (--entry.users == 0 && !entry.kept) all_.erase(number);
  }
  void forget(std::uint64_t begin, std::uint64_t end) { retire(begin, end, &counters.invalidations); }

  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> registered() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [number, entry] : all_) ranges.emplace_back(entry.begin, entry.end);
    std::sort(ranges.begin(), ranges.end());
    return ranges;
  }
  RegistrationCache::Counters counters;

 private:
  // Joins the range with what overlaps it if that can be kept, else leaves it as it is.
  bool make_room(std::uint64_t* begin, std::uint64_t* end) {
    std::uint64_t joined_begin = *begin;
    std::uint64_t joined_end = *end;
    for (const auto& [number, entry] : all_) {
      if (!entry.kept || entry.begin >= *end || entry.end <= *begin) continue;
      joined_begin = std::min(joined_begin, entry.begin);
      joined_end = std::max(joined_end, entry.end);
    }
    if (joined_end - joined_begin > bytes_ || !make_room_for(joined_begin, joined_end))
      return make_room_for(*begin, *end);
    *begin = joined_begin;
    *end = joined_end;
    return true;
  }
  bool make_room_for(std::uint64_t begin, std::uint64_t end) {
    retire(begin, end, &counters.evictions);
    while (count() >= entries_ || kept_bytes() + (end - begin) > bytes_) {
      if (!evict()) return false;
    }
    return true;
  }
  bool evict() {
    auto oldest = all_.end();
    for (auto entry = all_.begin(); entry != all_.end(); ++entry) {
      if (!entry->second.kept || entry->second.users != 0) continue;
      if (oldest == all_.end() || entry->second.used < oldest->second.used) oldest = entry;
    }
    if (oldest == all_.end()) return false;
    ++counters.evictions;
    all_.erase(oldest);
    return true;
  }
  void retire(std::uint64_t begin, std::uint64_t end, std::uint64_t* counter) {
    for (auto entry = all_.begin(); entry != all_.end();) {
      Entry& it = entry->second;
      if (!it.kept || it.begin >= end || it.end <= begin) {
        ++entry;
        continue;
      }
      ++*counter;
      it.kept = false;
      entry = it.users == 0 ? all_.erase(entry) : std::next(entry);
    }
  }
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(
        std::count_if(all_.begin(), all_.end(), [](const auto& entry) { return entry.second.kept; }));
  }
  [[nodiscard]] std::uint64_t kept_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [number, entry] : all_) bytes += entry.kept ? entry.end - entry.begin : 0;
    return bytes;
  }

  std::size_t entries_;
  std::uint64_t bytes_;
  std::map<std::size_t, Entry> all_;
  std::size_t last_ = 0;
  std::uint64_t time_ = 0;
};

class RegistrationCacheModel : public RegistrationCacheTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  struct Out {
    RegistrationCache::Lease lease;
    std::size_t number;
  };
  void acquire_both(Naive* model, std::uint64_t place, std::uint64_t bytes) {
    Out out{};
    out.number = model->acquire(kBase + place, kBase + place + bytes);
    ASSERT_EQ(acquire(place, bytes, &out.lease), HEDDLE_DONE);
    leases.push_back(out);
  }
  void release_both(Naive* model, std::size_t which) {
    model->release(leases[which].number);
    cache->release(leases[which].lease.entry);
    leases[which] = leases.back();
    leases.pop_back();
  }
  void compare(const Naive& model) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> known;
    for (const auto& [handle, range] : hardware.known) known.emplace_back(range.begin, range.end);
    std::sort(known.begin(), known.end());
    ASSERT_EQ(known, model.registered());
    ASSERT_EQ(cache->counters().hits, model.counters.hits);
    ASSERT_EQ(cache->counters().misses, model.counters.misses);
    ASSERT_EQ(cache->counters().passing, model.counters.passing);
    ASSERT_EQ(cache->counters().evictions, model.counters.evictions);
    ASSERT_EQ(cache->counters().invalidations, model.counters.invalidations);
  }
  std::vector<Out> leases;
};

TEST_P(RegistrationCacheModel, DoesTheSame) {
  std::mt19937 random(GetParam());
  const auto below = [&random](std::uint64_t most) { return random() % most; };
  const std::size_t entries = 1 + below(12);
  const std::uint64_t bytes = (4 + below(40)) * kPage;
  open(options(static_cast<std::uint32_t>(entries), bytes));
  Naive model(entries, bytes);
  const std::uint64_t room = (8 + below(100)) * kPage;
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t place = below(room);
    const std::uint64_t length = 1 + (below(4) == 0 ? below(8 * kPage) : below(kPage));
    const std::uint64_t kind = below(100);
    if (kind < 60 && leases.size() < 40) {
      acquire_both(&model, place, length);
      // Most operations end before the next begins.
      if (below(3) != 0) release_both(&model, leases.size() - 1);
    } else if (kind < 92) {
      if (!leases.empty()) release_both(&model, below(leases.size()));
    } else {
      model.forget(kBase + place, kBase + place + length);
      if (kind < 96) {
        watch->forget(kBase + place, kBase + place + length);
        // The cache reads the log at the next call.
        acquire_both(&model, place, length);
      } else {
        cache->forget(at(place), length);
      }
    }
    ASSERT_NO_FATAL_FAILURE(compare(model)) << "step " << step;
  }
  while (!leases.empty()) release_both(&model, leases.size() - 1);
  compare(model);
  cache.reset();
  EXPECT_TRUE(hardware.known.empty());
  EXPECT_EQ(watch->watched_pieces(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RegistrationCacheModel, testing::Range(1u, 33u));

}  // namespace
}  // namespace heddle::memory::registration_cache_test
