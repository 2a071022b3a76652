// For tests of networks: what one end does alone, while the other rank makes no calls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/test_waits.hpp"
#include "transport/conformance.hpp"

namespace heddle::transport::conformance {

// Polls only this port until the condition holds.
inline bool alone(Port& port, const std::function<bool()>& condition) {
  return test::within_time(condition, [&port] { port.poll(); });
}

inline base::Status run_alone(Port& port, const Command& command) {
  Token token = 0;
  if (!alone(port, [&] { return (token = port.post_one(command)) != 0; })) {
    ADD_FAILURE() << "never accepted";
    return HEDDLE_AGAIN;
  }
  if (!alone(port, [&] { return port.done(token); })) {
    ADD_FAILURE() << "never done";
    return HEDDLE_AGAIN;
  }
  return port.status(token);
}

inline Command transfer(Opcode opcode, const RemoteMemory& memory, std::vector<std::byte>* local) {
  Command command;
  command.opcode = opcode;
  command.rank = memory.rank;
  command.remote = &memory;
  command.local = local->data();
  command.bytes = local->size();
  return command;
}

}  // namespace heddle::transport::conformance
