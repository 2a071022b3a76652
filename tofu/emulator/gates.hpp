// The barrier gates of this process: their graph, and their signals to and from other processes.
//
// Threads: the application's threads and the engine share one mutex; a barrier is not a hot path of
// the emulator.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "tofu/emulator/gate_graph.hpp"
#include "tofu/emulator/model_parameters.hpp"
#include "tofu/emulator/packet.hpp"

namespace tofu_emulator {

class Engine;
class Process;

class Gates {
 public:
  // Engine, within a round: a signal from a remote gate. It is always taken: signals that it makes
  // the gate emit wait in the gate.
  void receive(const PacketHead& head, const std::byte* data);
  // Engine, within a round: emits waiting signals. Returns how many have left.
  std::size_t progress(Process& process, Engine& engine);
  // No signal waits to be emitted: the engine may sleep.
  [[nodiscard]] bool idle() const { return !waiting_.load(std::memory_order_seq_cst); }

  // Application. The caller has checked the arguments, except for the errors named here. Returns
  // UTOFU_SUCCESS or an error of uTofu.
  int allocate(Process& process, std::uint16_t tni, std::size_t count, unsigned long flags, utofu_vbg_id_t* ids);
  // INVALID_VBG_ID: not a gate of this process; then nothing is freed.
  int free(Process& process, const utofu_vbg_id_t* ids, std::size_t count);
  // INVALID_VBG_ID, INVALID_PATH; then nothing is set.
  int set(const Process& process, const utofu_vbg_setting* settings, std::size_t count);
  // INVALID_VBG_ID: not a set start gate of this process. BUSY: the result of the last operation
  // was not fetched.
  int start(Process& process, utofu_vbg_id_t id, const GateValue& value);
  // Like GateGraph::fetch(), or INVALID_VBG_ID.
  int fetch(Process& process, utofu_vbg_id_t id, GateData data, GateValue* result);

 private:
  // Strict mode: the thread that is in a call on a start gate that is not thread-safe.
  class Use;
  struct Owned {
    std::uint16_t tni = 0;
    std::uint16_t gate = 0;
    bool thread_safe = false;
    std::atomic<std::uint32_t> users{0};
  };

  [[nodiscard]] bool check_setting(const Process& process, const utofu_vbg_setting& setting, int* error) const;
  [[nodiscard]] bool local_to(utofu_vbg_id_t id, std::uint16_t tni) const;
  void note_waiting();

  mutable std::mutex mutex_;
  GateGraph graph_{model_parameters::kGate};
  std::unordered_map<utofu_vbg_id_t, Owned> owned_;
  // graph_ has outgoing signals: set and cleared under the mutex, read without by idle()
  std::atomic<bool> waiting_{false};
};

}  // namespace tofu_emulator
