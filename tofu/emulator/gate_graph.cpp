#include "tofu/emulator/gate_graph.hpp"

#include <algorithm>

namespace tofu_emulator {

bool GateGraph::Input::push(const GateSignal& signal) {
  if (count == kAhead) return false;
  waiting[(first + count++) % kAhead] = signal;
  return true;
}

GateSignal GateGraph::Input::pop() {
  const GateSignal signal = waiting[first];
  first = (first + 1) % kAhead;
  count--;
  return signal;
}

void GateGraph::add(utofu_vbg_id_t id, bool is_start) {
  gates_[id].is_start = is_start;
}

bool GateGraph::is_start(utofu_vbg_id_t id) const {
  const auto gate = gates_.find(id);
  return gate != gates_.end() && gate->second.is_start;
}

bool GateGraph::is_set(utofu_vbg_id_t id) const {
  const auto gate = gates_.find(id);
  return gate != gates_.end() && gate->second.is_set;
}

bool GateGraph::is_running(utofu_vbg_id_t id) const {
  const auto gate = gates_.find(id);
  return gate != gates_.end() && gate->second.state != Gate::State::idle;
}

void GateGraph::set(const utofu_vbg_setting& setting) {
  Gate& gate = gates_.at(setting.vbg_id);
  const bool is_start = gate.is_start;
  gate = {};
  gate.is_start = is_start;
  gate.is_set = true;
  gate.local.from = setting.src_lcl_vbg_id;
  gate.remote.from = setting.src_rmt_vbg_id;
  gate.to_local = setting.dst_lcl_vbg_id;
  gate.to_remote = setting.dst_rmt_vbg_id;
}

int GateGraph::start(utofu_vbg_id_t id, const GateValue& value, std::uint64_t model_ns) {
  Gate& gate = gates_.at(id);
  if (gate.state != Gate::State::idle) return UTOFU_ERR_BUSY;
  gate.state = Gate::State::running;
  gate.result = {id, id, model_ns, value};
  gate.result.value.sequence = ++gate.sequence;
  emit(id, gate, gate.result);
  // signals of others may have arrived already; a gate without inputs is done at once
  fire(id, gate);
  // set() has checked the gates of this process, so the only possible trouble is an input that
  // overflows. The operation then never completes, and the participant of the overflow is told.
  static_cast<void>(run_local());
  return UTOFU_SUCCESS;
}

int GateGraph::fetch(utofu_vbg_id_t id, GateData data, GateSignal* result) {
  Gate& gate = gates_.at(id);
  if (gate.state == Gate::State::idle) return UTOFU_ERR_BARRIER_OTHER;
  if (gate.result.value.data != data) return UTOFU_ERR_BARRIER_MISMATCH;
  if (gate.state == Gate::State::running) return UTOFU_ERR_NOT_COMPLETED;
  gate.state = Gate::State::idle;
  *result = gate.result;
  return gate.result.value.mismatched ? UTOFU_ERR_BARRIER_MISMATCH : UTOFU_SUCCESS;
}

SignalTrouble GateGraph::receive(const GateSignal& signal) {
  const SignalTrouble first = take(signal);
  const SignalTrouble later = run_local();
  return first != SignalTrouble::none ? first : later;
}

SignalTrouble GateGraph::take(const GateSignal& signal) {
  const auto found = gates_.find(signal.to);
  if (found == gates_.end() || !found->second.is_set) return SignalTrouble::no_gate;
  Gate& gate = found->second;
  Input* input = nullptr;
  if (gate.local.used() && gate.local.from == signal.from) input = &gate.local;
  if (gate.remote.used() && gate.remote.from == signal.from) input = &gate.remote;
  if (!input) return SignalTrouble::not_its_source;
  if (!input->push(signal)) return SignalTrouble::too_far_ahead;
  fire(signal.to, gate);
  return SignalTrouble::none;
}

void GateGraph::fire(utofu_vbg_id_t id, Gate& gate) {
  while (!gate.local.missing() && !gate.remote.missing()) {
    // the signals wait for the next operation
    if (gate.is_start && gate.state != Gate::State::running) return;
    // a start gate without inputs: the value that the process gave
    GateSignal result = gate.result;
    bool empty = true;
    for (Input* input : {&gate.local, &gate.remote}) {
      if (!input->used()) continue;
      const GateSignal signal = input->pop();
      if (empty) {
        result = signal;
      } else {
        result.value.combine(signal.value);
        result.model_ns = std::max(result.model_ns, signal.model_ns);
      }
      empty = false;
    }
    if (!gate.is_start) {
      if (empty) return;  // a relay without inputs never emits
      emit(id, gate, result);
      continue;
    }
    // The result must have the same kind as the value that this process gave, even if the result
    // contains nothing of that value (its own part of the graph may only send).
    const GateValue& given = gate.result.value;
    const bool agreed = result.value.sequence == given.sequence && result.value.data == given.data &&
                        result.value.op == given.op && result.value.count == given.count;
    if (!agreed) {
      result.value = given;
      result.value.mismatched = 1;
    }
    gate.result = result;
    gate.state = Gate::State::done;
  }
}

void GateGraph::emit(utofu_vbg_id_t id, const Gate& gate, const GateSignal& signal) {
  GateSignal sent = signal;
  sent.from = id;
  if (gate.to_local != UTOFU_VBG_ID_NULL) {
    sent.to = gate.to_local;
    sent.model_ns = signal.model_ns + local_model_ns_;
    local_.push_back(sent);
  }
  if (gate.to_remote != UTOFU_VBG_ID_NULL) {
    sent.to = gate.to_remote;
    sent.model_ns = signal.model_ns;
    outgoing_.push_back(sent);
  }
}

SignalTrouble GateGraph::run_local() {
  SignalTrouble trouble = SignalTrouble::none;
  while (!local_.empty()) {
    const GateSignal signal = local_.front();
    local_.pop_front();
    const SignalTrouble here = take(signal);
    if (here != SignalTrouble::none) trouble = here;
  }
  return trouble;
}

}  // namespace tofu_emulator
