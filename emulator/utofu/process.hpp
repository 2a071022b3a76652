// Everything that the emulator has in one process. The interface has no context to pass around, so there is one object.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "utofu/cq.hpp"
#include "utofu/engine.hpp"
#include "utofu/gates.hpp"
#include "utofu/machine.hpp"
#include "utofu/model.hpp"
#include "utofu/settings.hpp"
#include "utofu/world.hpp"

namespace tofu_emulator {

class Process {
 public:
  // The first call reads the settings and joins the world. Null: it could not, which has been said on stderr; the caller
  // returns UTOFU_ERR_FATAL.
  static Process* get();

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] World& world() { return *world_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] Gates& gates() { return gates_; }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] std::uint32_t number() const { return settings_.process; }
  [[nodiscard]] std::uint32_t node() const { return machine_.node_of(number()); }

  // For creation, registration of VCQs and gates: one at a time.
  [[nodiscard]] std::mutex& management() { return management_; }

  // A CQ that this process has claimed (World::claim_cq) comes to life, or is ended. With management() locked; engine not paused.
  // Ending drops what was posted and not executed; what was left is said (strict: a broken rule).
  CommandQueue* open_cq(std::uint16_t tni, std::uint16_t cq, CqMode mode);
  void close_cq(CommandQueue* cq);
  // Null: there is none.
  [[nodiscard]] CommandQueue* cq(std::uint16_t tni, std::uint16_t cq);
  // `vcq` with cq, id, flags, slot: notices and completions for this slot are kept from now on, until it is detached. The same.
  void attach(Vcq& vcq);
  void detach(Vcq& vcq);

 private:
  Process(const Settings& settings, std::unique_ptr<World> world);

  Settings settings_;
  Machine machine_;
  std::unique_ptr<World> world_;
  Model model_;
  Gates gates_;
  Engine engine_;
  std::mutex management_;
};

}  // namespace tofu_emulator
