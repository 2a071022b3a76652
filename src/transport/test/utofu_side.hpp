// For tests: one rank of a job of this process, with the transport alone, and puts of one word.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport::utofu {

inline constexpr std::uint32_t kRanks = 2;

class Side {
 public:
  Side(bootstrap::inproc::ThreadJob& job, std::uint32_t rank, const base::Config::Overrides& variables,
       base::Clock* clock = nullptr) {
    auto config = base::Config::read(variables);
    EXPECT_TRUE(config.ok()) << base::last_message();
    environment_.config = *config;
    environment_.log = base::Log(base::Level::warn, rank);
    environment_.clock = clock != nullptr ? clock : &clock_;
    bootstrap_ = std::move(*bootstrap::inproc::open(job, rank));
    auto transport = open(*bootstrap_, environment_);
    EXPECT_TRUE(transport.ok()) << base::last_message();
    if (transport) transport_ = std::move(*transport);
  }
  [[nodiscard]] Transport* transport() { return transport_.get(); }

 private:
  base::SystemClock clock_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Transport> transport_;
};

// Posts one put and waits until it has ended with that status.
inline void put_word(TransportWorker& worker, const RemoteMemory& remote, std::uint64_t offset, std::uint64_t value,
                     base::Status status = HEDDLE_DONE) {
  Command put;
  put.opcode = Opcode::put;
  put.rank = remote.rank;
  put.remote = &remote;
  put.offset = offset;
  put.local = &value;
  put.bytes = sizeof value;
  const test::Deadline deadline;
  bool posted = false;
  for (bool ended = false; !ended;) {
    ASSERT_FALSE(deadline.over());
    if (!posted) posted = worker.post({&put, 1}) == 1;
    Completion completion;
    if (worker.poll({&completion, 1}) == 0) {
      sched_yield();
      continue;
    }
    ASSERT_EQ(completion.status, status) << base::last_message();
    ended = true;
  }
}

inline std::uint64_t word_at(const void* memory, std::uint64_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(memory) + offset, sizeof value);
  return value;
}

}  // namespace heddle::transport::utofu
