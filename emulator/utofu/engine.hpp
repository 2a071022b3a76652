// What a node's network interfaces do for this process: takes commands from its TOQs, sends and handles packets, writes
// notices. A thread of its own, which is started with the first VCQ or gate and sleeps when there is nothing to do; with
// UTOFU_EMU_STEP=1 no thread, but a round in each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "utofu/packet.hpp"

namespace tofu_emulator {

class CommandQueue;
class Process;

class Engine {
 public:
  explicit Engine(Process& process);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // While it lives no round runs: to change what the rounds look at. Any thread but the engine's; not for hot paths.
  class Pause {
   public:
    explicit Pause(Engine& engine);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Engine& engine_;
  };

  // Users: CQs and sets of gates. The thread runs while there is one.
  void add_user();
  void remove_user();

  // Something was made that a round has to look at. Any thread; a system call only if the engine sleeps.
  void ring();

  // With UTOFU_EMU_STEP=1: a round; how many things it did. Otherwise nothing, 0. Any thread of the application.
  std::size_t step();

  // Within a round only. False: no room now; try again in the next round.
  [[nodiscard]] bool send_request(std::uint32_t process, PacketKind kind, const PacketHead& head, const void* data);

 private:
  Process& process_;
};

}  // namespace tofu_emulator
