// Barrier gates: values, the graph of gates, and the gates of this process.
//
// A value that gates combine has up to six words, or is up to three sums of doubles whose results
// do not depend on the order.
#pragma once

#include <utofu.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "tofu/emulator/model.hpp"
#include "tofu/emulator/world.hpp"

namespace tofu_emulator {

inline constexpr std::size_t kMostWords = 6;
inline constexpr std::size_t kMostDoubles = 3;

// A sum of doubles: digits of 32 bits at fixed binary places, with room for carries. Each addend is
// cut at the lowest digit for which the largest addend leaves room. So the sum is the same in any
// order and grouping, a property of the hardware's BFPSUM that programs may rely on. The hardware's
// last bits may differ.
//
// value = digit[i] * 2^(32 * (top - i)), summed over i. The largest addend is exact; the part cut
// from another addend is below 2^-32 of the largest one's last place. Valid for up to 1024 addends.
struct BlockSum {
  static constexpr std::int32_t kZero = -1'000'000;  // `top` of an empty sum
  std::array<std::int64_t, 4> digit{};
  std::int32_t top = kZero;
  std::int32_t unused = 0;

  // Finite numbers only.
  static BlockSum of(double value);
  void add(const BlockSum& other);
  [[nodiscard]] double value() const;
};

enum class GateData : std::uint8_t { none, words, doubles };

// The value of one signal.
struct GateValue {
  std::uint32_t sequence = 0;  // of the operation among those of its start gate
  GateData data = GateData::none;
  std::uint8_t op = UTOFU_REDUCE_OP_BARRIER;  // enum utofu_reduce_op
  std::uint8_t count = 0;                     // of words or doubles
  // 1: the participants do not agree on operation, count or sequence
  std::uint8_t mismatched = 0;
  std::array<std::uint64_t, kMostWords> words{};
  std::array<BlockSum, kMostDoubles> sums{};

  // UTOFU_SUCCESS, or the argument that is wrong: INVALID_OP (also for operations that are not
  // known to be supported), INVALID_NUMBER, INVALID_POINTER, INVALID_DATA (a double that is not
  // finite).
  static int of_words(utofu_reduce_op op, const std::uint64_t* data, std::size_t count, GateValue* value);
  static int of_doubles(utofu_reduce_op op, const double* data, std::size_t count, GateValue* value);

  void combine(const GateValue& other);
};

// The logic of barrier gates: what a gate does with signals. EmulatedGates has the processes and
// the network.
//
// A gate has up to two inputs and two outputs, one local and one remote each; UTOFU_VBG_ID_NULL:
// absent. When a signal waits at each of its inputs, the gate takes one from each, combines them,
// and emits the result at its outputs. An operation begins at the start gate, which emits the value
// that the process gives, and ends there: the combination of its inputs is the result.
//
// Signals from one gate to another stay in order. A participant that has the result may begin the
// next operation while others still wait for theirs. So up to kAhead signals can wait at one input;
// more means that the graph is not a barrier.

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

class Engine;
class Process;

// The barrier gates of this process: their graph, and their signals to and from other processes.
//
// Threads: the application's threads and the engine share one mutex; a barrier is not a hot path of
// the emulator.
class EmulatedGates {
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
