// The logic of barrier gates: what a gate does with signals. Processes and the network are in
// gates.hpp.
//
// A gate has up to two inputs and two outputs, one local and one remote each; UTOFU_VBG_ID_NULL:
// absent. When a signal waits at each of its inputs, the gate takes one from each, combines them,
// and emits the result at its outputs. An operation begins at the start gate, which emits the value
// that the process gives, and ends there: the combination of its inputs is the result.
//
// Signals from one gate to another stay in order. A participant that has the result may begin the
// next operation while others still wait for theirs. So up to kAhead signals can wait at one input;
// more means that the graph is not a barrier.
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "tofu/emulator/reduction.hpp"

namespace tofu_emulator {

struct GateSignal {
  utofu_vbg_id_t from = UTOFU_VBG_ID_NULL;
  utofu_vbg_id_t to = UTOFU_VBG_ID_NULL;
  // in the timing model: the arrival time; for a signal that waits to be sent, the time of
  // departure
  std::uint64_t model_ns = 0;
  GateValue value;
};

// Why a signal cannot be taken.
enum class SignalTrouble : std::uint8_t { none, no_gate, not_its_source, too_far_ahead };

// One process's gates. Not thread-safe.
class GateGraph {
 public:
  static constexpr std::size_t kAhead = 4;

  // local_model_ns: the time of a signal within the process, in the timing model.
  explicit GateGraph(std::uint64_t local_model_ns = 0) : local_model_ns_(local_model_ns) {}

  void add(utofu_vbg_id_t id, bool is_start);
  void remove(utofu_vbg_id_t id) { gates_.erase(id); }
  [[nodiscard]] bool has(utofu_vbg_id_t id) const { return gates_.contains(id); }
  [[nodiscard]] bool is_start(utofu_vbg_id_t id) const;
  [[nodiscard]] bool is_set(utofu_vbg_id_t id) const;
  // Whether an operation that began at this start gate has a result not yet fetched.
  [[nodiscard]] bool is_running(utofu_vbg_id_t id) const;

  // The gate must exist. Drops signals that wait at its inputs; the count of operations restarts.
  void set(const utofu_vbg_setting& setting);

  // For a start gate that is set. UTOFU_SUCCESS, or UTOFU_ERR_BUSY while is_running().
  int start(utofu_vbg_id_t id, const GateValue& value, std::uint64_t model_ns);
  // UTOFU_SUCCESS with the result; UTOFU_ERR_NOT_COMPLETED; UTOFU_ERR_BARRIER_MISMATCH: the
  // participants do not agree (the operation is over), or the result is not of `data` (the
  // operation is not over); UTOFU_ERR_BARRIER_OTHER: no operation was begun.
  int fetch(utofu_vbg_id_t id, GateData data, GateSignal* result);

  // Takes a signal from a remote gate.
  SignalTrouble receive(const GateSignal& signal);

  // Signals to remote gates, oldest first. The caller removes those that it has sent.
  std::deque<GateSignal>& outgoing() { return outgoing_; }

 private:
  struct Input {
    utofu_vbg_id_t from = UTOFU_VBG_ID_NULL;
    std::array<GateSignal, kAhead> waiting;
    std::size_t first = 0;
    std::size_t count = 0;
    [[nodiscard]] bool used() const { return from != UTOFU_VBG_ID_NULL; }
    [[nodiscard]] bool missing() const { return used() && count == 0; }
    bool push(const GateSignal& signal);
    GateSignal pop();
  };
  struct Gate {
    Input local;
    Input remote;
    utofu_vbg_id_t to_local = UTOFU_VBG_ID_NULL;
    utofu_vbg_id_t to_remote = UTOFU_VBG_ID_NULL;
    bool is_start = false;
    bool is_set = false;
    enum class State : std::uint8_t { idle, running, done } state = State::idle;
    std::uint32_t sequence = 0;
    GateSignal result;  // while running: the value that the process gave
  };

  SignalTrouble take(const GateSignal& signal);
  void fire(utofu_vbg_id_t id, Gate& gate);
  void emit(utofu_vbg_id_t id, const Gate& gate, const GateSignal& signal);
  SignalTrouble run_local();

  std::uint64_t local_model_ns_;
  std::unordered_map<utofu_vbg_id_t, Gate> gates_;
  std::deque<GateSignal> local_;  // to gates of this process, not yet taken
  std::deque<GateSignal> outgoing_;
};

}  // namespace tofu_emulator
