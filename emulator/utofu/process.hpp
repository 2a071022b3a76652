// Everything that the emulator has in one process. The interface has no context to pass around, so
// there is one object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "utofu/cq.hpp"
#include "utofu/engine.hpp"
#include "utofu/gates.hpp"
#include "utofu/links.hpp"
#include "utofu/machine.hpp"
#include "utofu/model.hpp"
#include "utofu/settings.hpp"
#include "utofu/world.hpp"

namespace tofu_emulator {

class Process {
 public:
  // The first call reads the settings and joins the world, which the process leaves when it exits.
  // Null: it could not, which has been said on stderr; the caller returns UTOFU_ERR_FATAL. Any
  // thread.
  static Process* get();

  // For tests; programs have the one of get().
  Process(const Settings& settings, std::unique_ptr<World> world);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] World& world() { return *world_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] Gates& gates() { return gates_; }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] std::uint32_t number() const { return settings_.process; }
  [[nodiscard]] std::uint32_t node() const { return machine_.node_of(number()); }

  // More threads that want to run than cores, as far as is known.
  [[nodiscard]] bool crowded() const { return crowded_; }
  // So many polls that find nothing, and the core is given away once.
  [[nodiscard]] std::uint32_t patience() const { return crowded_ ? 16 : 2048; }

  // For creation and registration of VCQs and gates: one at a time.
  [[nodiscard]] std::mutex& management() { return management_; }

  // A CQ that this process has claimed (World::claim_cq) comes to life, or is ended and given back.
  // With management() locked; engine not paused. Ending first lets run what can; what is left then
  // is dropped and said (strict: a broken rule).
  CommandQueue* open_cq(std::uint16_t tni, std::uint16_t cq, CqMode mode);
  void close_cq(CommandQueue* cq);
  // Null: there is none. Engine, or with management() locked.
  [[nodiscard]] CommandQueue* cq(std::uint16_t tni, std::uint16_t cq);
  // All of them. Engine, or paused.
  [[nodiscard]] const std::vector<CommandQueue*>& cqs() const { return list_; }
  // `vcq` with cq, id, flags, slot: notices and completions for this slot are kept from now on,
  // until it is detached. The same.
  void attach(Vcq& vcq);
  void detach(Vcq& vcq);

 private:
  Settings settings_;
  Machine machine_;
  std::unique_ptr<World> world_;
  bool crowded_;
  std::string place_;  // "0 1 0 0 0 0", for messages
  Links links_;
  Model model_;
  Gates gates_;
  // changed while the engine is paused
  std::array<std::array<std::unique_ptr<CommandQueue>, kCqs>, kTnis> cqs_;
  std::vector<CommandQueue*> list_;  // likewise
  Engine engine_;
  std::mutex management_;
};

}  // namespace tofu_emulator
