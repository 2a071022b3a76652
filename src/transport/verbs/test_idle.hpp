// For the tests of the verbs transport: worlds over the idle libibverbs, and what they share.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/conformance.hpp"
#include "transport/verbs/idle_verbs.hpp"

namespace heddle::transport::verbs {

using conformance::message_to;
using conformance::pattern;
using conformance::Setting;
using conformance::World;

inline Setting setting(base::Config::Overrides more = {}) {
  more.emplace("HEDDLE_VERBS_LIBRARY", HEDDLE_IDLE_VERBS);
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

}  // namespace heddle::transport::verbs
