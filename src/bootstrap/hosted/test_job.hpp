// For tests: a launcher that starts its ranks as threads, and a job of them.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::hosted {

// The state of a job's launcher.
class Space {
 public:
  explicit Space(std::uint32_t size) : size_(size) {}

  std::string share(std::uint32_t rank, const std::string& value) {
    std::unique_lock lock(mutex_);
    if (rank == 0) value_ = value;
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return arrived_ >= size_; });
    return value_;
  }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::string value() {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void finished() {
    const std::lock_guard lock(mutex_);
    ++finished_;
  }
  [[nodiscard]] std::uint32_t finished_ranks() {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  const std::uint32_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string value_;
  std::uint32_t arrived_ = 0;
  std::uint32_t finished_ = 0;
};

class FakeLauncher final : public ForeignLauncher {
 public:
  // alter: changes the value that this rank is told.
  using Alter = std::function<std::string(const std::string& value)>;
  FakeLauncher(Space& space, std::uint32_t rank, bool one_host, Alter alter)
      : space_(space), rank_(rank), one_host_(one_host), alter_(std::move(alter)) {}

  [[nodiscard]] const char* name() const override { return "fake"; }
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return space_.size(); }
  [[nodiscard]] bool one_host() override { return one_host_; }
  base::Result<std::string> share(const std::string& value) override {
    const std::string told = space_.share(rank_, value);
    return alter_ ? alter_(told) : told;
  }
  void finish() override {
    EXPECT_EQ(std::this_thread::get_id(), thread_);
    space_.finished();
  }
  void abort(int, const char*) override { ADD_FAILURE() << "nobody aborts here"; }

 private:
  Space& space_;
  const std::uint32_t rank_;
  const bool one_host_;
  const Alter alter_;
  const std::thread::id thread_ = std::this_thread::get_id();  // that of all calls
};

inline base::Result<std::unique_ptr<Bootstrap>> join(Space& space, std::uint32_t rank, bool one_host = true,
                                                     FakeLauncher::Alter alter = nullptr) {
  return open(
      [&]() -> base::Result<std::unique_ptr<ForeignLauncher>> {
        return std::unique_ptr<ForeignLauncher>(std::make_unique<FakeLauncher>(space, rank, one_host, alter));
      },
      {});
}

using Parts = std::vector<std::vector<std::byte>>;

inline base::Status exchange(Bootstrap& bootstrap, std::span<const std::byte> mine, Parts* all) {
  if (const base::Status status = bootstrap.exchange_start(mine); status != HEDDLE_DONE) return status;
  base::Status status = HEDDLE_AGAIN;
  EXPECT_TRUE(test::within_time([&] { return (status = bootstrap.exchange_test(all)) != HEDDLE_AGAIN; }, [] {}));
  return status;
}

inline base::Status barrier(Bootstrap& bootstrap) {
  Parts none;
  return exchange(bootstrap, {}, &none);
}

inline void await_failure(const Bootstrap& bootstrap, std::uint32_t rank) {
  EXPECT_TRUE(test::within_time([&] { return bootstrap.failed(rank); }, [] {})) << "rank " << rank;
}

inline base::Result<Card> fetch(Bootstrap& bootstrap, std::uint32_t rank) {
  base::Result<Card> card = HEDDLE_AGAIN;
  EXPECT_TRUE(test::within_time([&] { return card.status() != HEDDLE_AGAIN; }, [&] { card = bootstrap.fetch(rank); }));
  return card;
}

// Runs `rank` for each rank on a thread of its own.
inline void run(std::uint32_t size, const std::function<void(std::uint32_t rank)>& rank) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < size; ++i) threads.emplace_back([&, i] { rank(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace heddle::bootstrap::hosted
