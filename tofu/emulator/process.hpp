// The whole emulator in one process. The interface has no context to pass around, so there is one
// object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tofu/emulator/cq.hpp"
#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/gates.hpp"
#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/model.hpp"
#include "tofu/emulator/settings.hpp"
#include "tofu/emulator/world.hpp"

namespace tofu_emulator {

class Process {
 public:
  // The first call reads the settings and joins the world; the process leaves it at exit. Null:
  // this failed and was reported on stderr; the caller returns UTOFU_ERR_FATAL. Any thread.
  static Process* get();

  // For tests; programs use get().
  Process(const EmulatorSettings& settings, std::unique_ptr<World> world);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] const EmulatorSettings& settings() const { return settings_; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] World& world() { return *world_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] EmulatedGates& gates() { return gates_; }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] std::uint32_t number() const { return settings_.process; }
  [[nodiscard]] std::uint32_t node() const { return machine_.node_of(number()); }

  // Whether there are more runnable threads than cores, as far as is known.
  [[nodiscard]] bool crowded() const { return crowded_; }
  // The number of polls in vain after which a caller yields the core.
  [[nodiscard]] std::uint32_t patience() const { return crowded_ ? 16 : 2048; }

  // Serializes creation and registration of VCQs and gates.
  [[nodiscard]] std::mutex& management() { return management_; }

  // Opens a CQ that this process has claimed (World::claim_cq), or closes it and releases the
  // claim. With management() locked; engine not paused. Closing first runs the commands that can
  // run; the rest is dropped and reported (strict: a broken rule).
  EmulatedCq* open_cq(std::uint16_t tni, std::uint16_t cq, CqMode mode);
  void close_cq(EmulatedCq* cq);
  // Null: it is not open. Engine, or with management() locked.
  [[nodiscard]] EmulatedCq* cq(std::uint16_t tni, std::uint16_t cq);
  // All open CQs. Engine, or paused.
  [[nodiscard]] const std::vector<EmulatedCq*>& cqs() const { return list_; }
  // `vcq` has cq, id, flags, slot: from now on notices and completions for this slot are kept,
  // until detach(). With management() locked; engine not paused.
  void attach(EmulatedVcq& vcq);
  void detach(EmulatedVcq& vcq);

 private:
  EmulatorSettings settings_;
  Machine machine_;
  std::unique_ptr<World> world_;
  bool crowded_;
  std::string place_;  // "0 1 0 0 0 0", for messages
  Links links_;
  Model model_;
  EmulatedGates gates_;
  // changed while the engine is paused
  std::array<std::array<std::unique_ptr<EmulatedCq>, kCqs>, kTnis> cqs_;
  std::vector<EmulatedCq*> list_;  // likewise
  Engine engine_;
  std::mutex management_;
};

}  // namespace tofu_emulator
