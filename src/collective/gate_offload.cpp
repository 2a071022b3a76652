#include "collective/gate_offload.hpp"

#include <algorithm>
#include <utility>

#include "collective/assembly.hpp"
#include "collective/team.hpp"

namespace heddle::collective {

static_assert(Gate::kNone == transport::GateWires::kNone);

namespace {

const char* name_of_gates(Operation operation) {
  switch (operation) {
    case Operation::barrier:
      return "barrier.gates";
    case Operation::reduce:
      return "reduce.gates";
    default:
      return "allreduce.gates";
  }
}

}  // namespace

// ---- the gates of a team ------------------------------------------------------------------------

std::shared_ptr<TeamGates> TeamGates::open(transport::BarrierGates* gates, Rank rank, Rank ranks, const Name& name) {
  if (gates == nullptr || ranks < 2) return nullptr;
  std::vector<Gate> graph = gates_of(rank, ranks);
  auto chain = gates->open(static_cast<std::uint32_t>(graph.size()), name.lane);
  if (!chain) return nullptr;
  return std::shared_ptr<TeamGates>(new TeamGates(std::move(graph), std::move(*chain), name.network));
}

// Two members have at most one connection in each direction (gate_graph.hpp).
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
  const auto first = records[0].keys.get<GateKeys>();
  return std::ranges::all_of(records, [&](const Record& record) {
    const auto its = record.keys.get<GateKeys>();
    return its.lane == first.lane && its.network == first.network;
  });
}

base::Status TeamGates::bind(std::span<const Record> records) {
  if (bound_) return HEDDLE_DONE;
  std::vector<GateKeys> members;
  for (const Record& record : records) members.push_back(record.keys.get<GateKeys>());
  std::vector<transport::GateWires> wires;
  wires.reserve(graph_.size());
  for (const Gate& gate : graph_) {
    transport::GateWires& its = wires.emplace_back();
    its.from_local = gate.from_local;
    its.to_local = gate.to_local;
    if (gate.from_rank != Gate::kNone) its.from_peer = &members[gate.from_rank].key;
    if (gate.to_rank != Gate::kNone) its.to_peer = &members[gate.to_rank].key;
  }
  const base::Status status = chain_->bind(wires);
  bound_ = status == HEDDLE_DONE;
  return status;
}

// The network that blocking calls share has number 0.
std::shared_ptr<TeamGates> TeamNetworks::open(const Team& team, bool common) {
  if (common && common_ == Common::decided) return offered_ = gates_;
  if (common) common_ = Common::asked;
  if (refused_) return nullptr;
  const std::uint32_t network = common ? 0 : made_ + 1;
  transport::BarrierGates* interface = team.context().transport().gates();
  return offered_ = TeamGates::open(interface, team.rank(), team.size(), {network, team.rank_in_job(0) + made_});
}

bool TeamNetworks::settled(base::Status status, bool offloaded) {
  const std::shared_ptr<TeamGates> its = std::exchange(offered_, nullptr);
  const bool by_gates = offloaded && its != nullptr;
  if (status == HEDDLE_DONE) ++made_;
  if (common_ == Common::asked) {
    common_ = status == HEDDLE_DONE ? Common::decided : Common::unknown;
    if (status == HEDDLE_DONE && by_gates) gates_ = its;
  }
  if (status != HEDDLE_ERR_SYSTEM || !by_gates) return false;
  refused_ = true;
  common_ = Common::decided;
  gates_ = nullptr;
  return true;
}

void TeamNetworks::leave() {
  if (gates_ != nullptr) gates_->chain().leave();
}

// ---- an operation -------------------------------------------------------------------------------

std::unique_ptr<Runner> GateOffload::open(const Plan& plan, const Places&) {
  transport::BarrierGates* interface = plan.team.context().transport().gates();
  if (plan.use == Use::once || plan.named || interface == nullptr || plan.team.size() < 2) return nullptr;
  const auto how = GateReduction::of(plan.call, std::min(interface->limits().words, kMostWords));
  if (!how) return nullptr;
  auto gates = plan.team.networks().open(plan.team, plan.use == Use::kept);
  if (gates == nullptr) return nullptr;
  auto made = std::make_unique<GateOffload>(std::move(gates), *how, name_of_gates(plan.call.operation));
  made->set_buffers(plan.call);
  return made;
}

void GateOffload::tell(Rank member, Record* record) const {
  GateKeys keys;
  gates_->tell(member, &keys);
  record->keys.set(keys);
}

void GateOffload::set_buffers(const Call& call) {
  send_ = call.send;
  receive_ = call.receive;
}

const char* GateOffload::reason(base::Status status) const {
  if (status != HEDDLE_ERR_ARGUMENT) return Offload::reason(status);
  return "members of the team have made other calls, or with other arguments; its blocking calls of few words cannot "
         "go on";
}

void GateOffload::begin_run() {
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
