// Shared by the tests of the requester: a requester over a transport that is played, and the end of
// one of its operations.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/requester.hpp"
#include "engine/test_core.hpp"

namespace heddle::engine::test {

using transport::Command;
using transport::Opcode;

// How an operation that somebody is told of has ended.
struct Told {
  int times = 0;
  base::Status status = HEDDLE_AGAIN;
  [[nodiscard]] CallersCompletion completion(heddle_when when = HEDDLE_WHEN_REMOTE) {
    const auto note = [](void* arg, heddle_status ended) {
      auto* self = static_cast<Told*>(arg);
      ++self->times;
      self->status = ended;
    };
    return {note, this, nullptr, when};
  }
};

class RequesterTest : public PlayedCore {
 protected:
  static constexpr std::uint32_t kMemory = transport::bit(Opcode::put) | transport::bit(Opcode::get);

  RequesterTest() : PlayedCore(3) { played.done_at_once = false; }

  // A region of that rank; commands reach it unless `opcodes` lacks them.
  struct Remote : RemoteRegion {
    explicit Remote(std::uint32_t of, std::uint32_t opcodes = kMemory) {
      rank = of;
      number = 77;
      server = 3;
      bytes = memory.bytes = 4096;
      memory.opcodes = one_command = opcodes;
      memory.rank = of;
    }
  };
  // One with small limits, over the same transport and operations.
  [[nodiscard]] static transport::Capabilities small_limits() {
    transport::Capabilities capabilities;
    capabilities.max_message = 96;
    capabilities.max_transfer = 100;
    return capabilities;
  }

  [[nodiscard]] Command message() const {
    Command command(1, 2, wire::encode_am(5, 0));
    command.set_message(nullptr, 0, &word, sizeof word);
    return command;
  }
  [[nodiscard]] Command transfer(Kind kind, RemoteRegion& remote) {
    Command command;
    EXPECT_TRUE(core.requester.whole({kind, local.data(), 64, &remote, 8}, &command));
    return command;
  }
  [[nodiscard]] std::size_t slots() {
    std::size_t live = 0;
    for (const Operation& operation : core.operations.slots()) live += operation.live ? 1 : 0;
    return live;
  }
  void expect_nothing_under_way() {
    EXPECT_EQ(slots(), 0U);
    EXPECT_EQ(core.operations.under_way(), 0U);
    EXPECT_TRUE(core.operations.pending().empty());
  }
  void complete_all(base::Status status = HEDDLE_DONE) {
    for (const auto& one : played.posted) played.complete(one.token, status);
    EXPECT_EQ(progress(), static_cast<int>(played.posted.size()));
    played.posted.clear();
  }
  // Takes every slot; the transport is not asked any more.
  void fill_slots() {
    while (core.operations.begin(Kind::message, 2, kNoCompletion) != nullptr) {
    }
  }

  const std::uint64_t word = 42;
  std::array<std::byte, 4096> local{};
  Told told;
  const transport::Capabilities small_capabilities = small_limits();
  Requester small{played, small_capabilities, core.operations, {0, 1}};
};

}  // namespace heddle::engine::test
