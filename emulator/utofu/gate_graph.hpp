// Barrier gates as such: what a gate does with signals. No process, no network: those are in
// gates.hpp.
//
// A gate has two inputs and two outputs, a local and a remote one of each; UTOFU_VBG_ID_NULL: it
// has not. When a signal waits at every input that it has, it takes one from each, combines them,
// and emits the result at its outputs. The start gate also is where an operation begins (it emits
// what the process gives) and where it ends (what it would emit is the result).
//
// Signals from one gate to another stay in order. A participant that has the result may begin the
// next operation while others still wait for theirs, so up to kAhead signals can wait at one input;
// more means that the graph is not a barrier.
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "utofu/reduction.hpp"

namespace tofu_emulator {

struct GateSignal {
  utofu_vbg_id_t from = UTOFU_VBG_ID_NULL;
  utofu_vbg_id_t to = UTOFU_VBG_ID_NULL;
  // when it arrives (where it waits to be sent: when it leaves), in the timing model
  std::uint64_t model_ns = 0;
  GateValue value;
};

// What is wrong with a signal that cannot be taken.
enum class SignalTrouble : std::uint8_t { none, no_gate, not_its_source, too_far_ahead };

// One process's gates. Not thread-safe.
class GateGraph {
 public:
  static constexpr std::size_t kAhead = 4;

  // How long a signal takes within the process, in the timing model.
  explicit GateGraph(std::uint64_t local_model_ns = 0) : local_model_ns_(local_model_ns) {}

  void add(utofu_vbg_id_t id, bool is_start);
  void remove(utofu_vbg_id_t id) { gates_.erase(id); }
  [[nodiscard]] bool has(utofu_vbg_id_t id) const { return gates_.contains(id); }
  [[nodiscard]] bool is_start(utofu_vbg_id_t id) const;
  [[nodiscard]] bool is_set(utofu_vbg_id_t id) const;
  // An operation was begun at this start gate whose result has not been fetched.
  [[nodiscard]] bool is_running(utofu_vbg_id_t id) const;

  // The gate exists. Signals that wait at its inputs are forgotten; the count of operations begins
  // anew.
  void set(const utofu_vbg_setting& setting);

  // A start gate that is set. UTOFU_SUCCESS, or UTOFU_ERR_BUSY while is_running().
  int start(utofu_vbg_id_t id, const GateValue& value, std::uint64_t model_ns);
  // UTOFU_SUCCESS with the result; UTOFU_ERR_NOT_COMPLETED; UTOFU_ERR_BARRIER_MISMATCH: the
  // participants do not agree, the operation is over, or (and it is not) this is no result of
  // `data`; UTOFU_ERR_BARRIER_OTHER: nothing was begun.
  int fetch(utofu_vbg_id_t id, GateData data, GateSignal* result);

  // A signal from a remote gate.
  SignalTrouble receive(const GateSignal& signal);

  // Signals to remote gates, oldest first. Who has sent one takes it out.
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
    GateSignal result;  // running: what was given
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
