#include "collective/gate_offload.hpp"

#include <algorithm>

#include "collective/assembly.hpp"

namespace heddle::collective {

static_assert(Gate::kNone == transport::GateWires::kNone);

std::shared_ptr<TeamGates> TeamGates::open(transport::BarrierGates* gates, Rank rank, Rank ranks, const Name& name) {
  if (gates == nullptr || ranks < 2) return nullptr;
  std::vector<Gate> graph = gates_of(rank, ranks);
  auto chain = gates->open(static_cast<std::uint32_t>(graph.size()), name.lane);
  if (!chain) return nullptr;
  return std::shared_ptr<TeamGates>(new TeamGates(std::move(graph), std::move(*chain), name.network));
}

// Each two members have one connection at most in each direction (gate_graph.hpp).
void TeamGates::tell(Rank member, GateKeys* keys) const {
  std::uint32_t sends = Gate::kNone;
  std::uint32_t gets = Gate::kNone;
  for (std::uint32_t gate = 0; gate < graph_.size(); ++gate) {
    if (graph_[gate].to_rank == member) sends = gate;
    if (graph_[gate].from_rank == member) gets = gate;
  }
  keys->gates = static_cast<std::uint32_t>(graph_.size());
  keys->lane = chain_->lane();
  keys->network = network_;
  keys->key = chain_->key(sends, gets);
}

bool TeamGates::agreed(std::span<const Record> records) const {
  return std::ranges::all_of(records, [&](const Record& record) {
    return record.gates.gates > 0 && record.gates.lane == records[0].gates.lane &&
           record.gates.network == records[0].gates.network;
  });
}

base::Status TeamGates::bind(std::span<const Record> records) {
  if (bound_) return HEDDLE_DONE;
  std::vector<transport::GateWires> wires;
  wires.reserve(graph_.size());
  for (const Gate& gate : graph_) {
    transport::GateWires& its = wires.emplace_back();
    its.from_local = gate.from_local;
    its.to_local = gate.to_local;
    if (gate.from_rank != Gate::kNone) its.from_peer = &records[gate.from_rank].gates.key;
    if (gate.to_rank != Gate::kNone) its.to_peer = &records[gate.to_rank].gates.key;
  }
  const base::Status status = chain_->bind(wires);
  bound_ = status == HEDDLE_DONE;
  return status;
}

void GateOffload::tell(Rank member, Record* record) const {
  gates_->tell(member, &record->gates);
}

void GateOffload::begin() {
  const auto words = std::span(words_).first(how_.words());
  how_.give(send_, words);
  const base::Status status = gates_->chain().start(how_.op(), words);
  if (status != HEDDLE_DONE) fail(status);
}

base::Status GateOffload::look() {
  const auto words = std::span(words_).first(how_.words());
  const base::Status status = gates_->chain().poll(words);
  if (status == HEDDLE_DONE && receive_ != nullptr) how_.take(words, receive_);
  return status;
}

}  // namespace heddle::collective
