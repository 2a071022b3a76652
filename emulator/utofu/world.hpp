// The memory that the processes of a world share: who they are, whose the CQs are, and the rings between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "utofu/machine.hpp"
#include "utofu/settings.hpp"

namespace tofu_emulator {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFF;

// A CQ's or gate's entry in the directory, one word: owner and generation. Generations count the owners.
struct Owner {
  std::uint32_t process = kNobody;
  std::uint32_t generation = 0;
  [[nodiscard]] bool somebody() const { return process != kNobody; }
};

class World {
 public:
  // Joins. Null: *problem says why not and what to do.
  static std::unique_ptr<World> join(const Settings& settings, const Machine& machine, std::string* problem);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The directory. Any thread, no lock; the processes of a node compete for what the node has.
  [[nodiscard]] bool claim_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq);  // false: somebody has it
  void release_cq(std::uint32_t node, std::uint16_t tni, std::uint16_t cq);
  [[nodiscard]] Owner cq_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const;
  [[nodiscard]] bool claim_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate);
  void release_gate(std::uint32_t node, std::uint16_t tni, std::uint16_t gate);
  [[nodiscard]] Owner gate_owner(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const;

 private:
  World() = default;
};

}  // namespace tofu_emulator
