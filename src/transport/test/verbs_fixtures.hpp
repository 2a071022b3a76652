// For the tests of the verbs transport: worlds over the idle libibverbs, and what they share.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/test/conformance.hpp"
#include "transport/test/verbs_idle.hpp"

namespace heddle::transport::verbs {

using conformance::message_to;
using conformance::pattern;
using conformance::Setting;
using conformance::World;

inline Setting setting(base::Config::Overrides more = {}) {
  more.emplace("HEDDLE_LIBRARIES", "verbs=" HEDDLE_IDLE_VERBS);
  return {"idle", "verbs", std::move(more)};
}

class Verbs : public testing::Test {
 protected:
  Verbs() {
    void* const library = dlopen(HEDDLE_IDLE_VERBS, RTLD_NOW | RTLD_NODELETE);
    if (library == nullptr) throw std::runtime_error(dlerror());
    idle_ = static_cast<IdleVerbs*>(dlsym(library, "idle_verbs"));
    go_on_ = reinterpret_cast<decltype(&idle_verbs_go_on)>(dlsym(library, "idle_verbs_go_on"));
    break_datagrams_ =
        reinterpret_cast<decltype(&idle_verbs_break_datagrams)>(dlsym(library, "idle_verbs_break_datagrams"));
    tell_event_ = reinterpret_cast<decltype(&idle_verbs_tell_event)>(dlsym(library, "idle_verbs_tell_event"));
    forge_message_ = reinterpret_cast<decltype(&idle_verbs_forge_message)>(dlsym(library, "idle_verbs_forge_message"));
    forge_ = reinterpret_cast<decltype(&idle_verbs_forge)>(dlsym(library, "idle_verbs_forge"));
  }
  ~Verbs() override {
    release();
    idle_->cut = idle_->refuses_resets = idle_->keeps_completions = false;
    idle_->fail_routes = idle_->fail_connects = 0;
    idle_->adapters = 0b1111;
    idle_->lose_every = idle_->twice_every = 0;
    idle_->most_registered = idle_->objects_left = UINT64_MAX;
    idle_->most_receives = 1024;
    idle_->most_inline = 128;
    idle_->most_bytes_of_idle1 = 1U << 30;
    idle_->concerned = ~0U;
  }

  void release() {
    idle_->holds = false;
    go_on_();
  }

  IdleVerbs* idle_;
  decltype(&idle_verbs_go_on) go_on_;
  decltype(&idle_verbs_forge) forge_;
  decltype(&idle_verbs_forge_message) forge_message_;
  decltype(&idle_verbs_tell_event) tell_event_;
  decltype(&idle_verbs_break_datagrams) break_datagrams_;
};

// Sends even if the helper is inside the port at times. No other port makes progress meanwhile.
inline bool send_alone(conformance::Port& port, const Command& command) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!port.send(command)) {
    if (std::chrono::steady_clock::now() > end) return false;
    port.poll();
  }
  return true;
}

// Posts all, also if the helper is inside the port just now, without polling.
inline bool post_all(conformance::Port& port, std::span<Command> batch) {
  return test::within_time([&] { return port.post(batch) == batch.size(); });
}

// Memory of rank 1 that rank 0 reaches.
class Memory {
 public:
  explicit Memory(World& world) : world_(world) {
    auto target = world.transport(1).allocate(kBytes);
    if (!target) throw std::runtime_error(base::last_message());
    target_ = *target;
    auto memory = world.transport(0).import(1, target_.key);
    if (!memory) throw std::runtime_error(base::last_message());
    memory_ = *memory;
  }
  ~Memory() {
    world_.transport(0).release(memory_);
    world_.transport(1).free(target_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Command put(std::uint64_t bytes = 8) {
    Command command;
    command.opcode = Opcode::put;
    command.rank = 1;
    command.remote = &memory_;
    command.local = data_.data();
    command.bytes = bytes;
    return command;
  }

 private:
  static constexpr std::uint64_t kBytes = 4096;
  World& world_;
  LocalMemory target_;
  RemoteMemory memory_;
  std::vector<std::byte> data_ = pattern(5, kBytes);
};

// Pumps for a while.
inline void pump_for(World& world, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) world.pump();
}

// For the tests of transfers over both adapters.

using conformance::transfer;

inline constexpr std::uint64_t kAbove = 64 << 10;
inline constexpr std::uint64_t kRegion = 1 << 20;

class VerbsStripes : public Verbs {
 protected:
  static Setting two(base::Config::Overrides more = {}) {
    more.emplace("HEDDLE_NET_DEVICES", "idle0,idle1");
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
