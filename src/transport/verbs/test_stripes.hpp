// For the tests of transfers over both adapters.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/network/test_alone.hpp"
#include "transport/verbs/test_idle.hpp"

namespace heddle::transport::verbs {

using conformance::transfer;

inline constexpr std::uint64_t kAbove = 64 << 10;
inline constexpr std::uint64_t kRegion = 1 << 20;

class VerbsStripes : public Verbs {
 protected:
  static Setting two(base::Config::Overrides more = {}) {
    more.emplace("HEDDLE_VERBS_DEVICES", "idle0,idle1");
    more.emplace("HEDDLE_VERBS_STRIPE_BYTES", std::to_string(kAbove));
    return setting(std::move(more));
  }
  void open(const Setting& with, std::uint32_t workers = 1) {
    world_ = std::make_unique<World>(with, 2, workers);
    auto target = world_->transport(1).allocate(kRegion);
    ASSERT_TRUE(target.ok()) << base::last_message();
    target_ = *target;
    auto memory = world_->transport(0).import(1, target_.key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    memory_ = *memory;
  }
  void TearDown() override {
    if (world_ == nullptr) return;
    release();
    world_->transport(0).release(memory_);
    world_->transport(1).free(target_);
    world_.reset();
  }
  // Work requests that a put, or a get, of so many bytes takes; the bytes are right.
  std::uint64_t requests_of(Opcode opcode, std::uint64_t bytes, std::uint32_t worker = 0, std::uint64_t offset = 8) {
    std::vector<std::byte> local = pattern(bytes + worker, bytes);
    std::byte* const there = static_cast<std::byte*>(target_.address) + offset;
    const std::vector<std::byte> wanted = pattern(bytes + worker + 1, bytes);
    if (opcode == Opcode::get) std::memcpy(there, wanted.data(), bytes);
    Command command = transfer(opcode, memory_, &local);
    command.offset = offset;
    command.worker = worker;
    const std::uint64_t before = idle_->requests;
    EXPECT_EQ(world_->run(world_->port(0, worker), command), HEDDLE_DONE);
    EXPECT_TRUE(opcode == Opcode::get ? local == wanted : std::equal(local.begin(), local.end(), there)) << bytes;
    return idle_->requests - before;
  }
  void connect(std::uint32_t workers = 1) {
    for (std::uint32_t worker = 0; worker < workers; ++worker)
      ASSERT_EQ(world_->run(world_->port(0, worker), message_to(1, worker, pattern(1, 8))), HEDDLE_DONE);
  }
  // Rank 0's other adapter fails: its worker 0 and the peer's give up their second pairs.
  void fail_other() {
    const std::uint64_t pairs = idle_->pairs;
    EXPECT_TRUE(tell_event_(1, IBV_EVENT_DEVICE_FATAL));  // the second that was opened
    ASSERT_TRUE(world_->until([&] { return idle_->pairs == pairs - 2; }));
  }
  Token post(std::vector<std::byte>* local) {
    Token token = 0;
    EXPECT_TRUE(test::within_time(
        [&] { return (token = world_->port(0).post_one(transfer(Opcode::put, memory_, local))) != 0; }));
    return token;
  }

  std::unique_ptr<World> world_;
  LocalMemory target_;
  RemoteMemory memory_;
};

}  // namespace heddle::transport::verbs
