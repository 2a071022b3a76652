#include "collective/gate_offload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "collective/assembly.hpp"
#include "collective/reduction.hpp"
#include "collective/team.hpp"

namespace heddle::collective {

namespace {

// The numbers of the gates of a rank below m, by their function.
class Doubling {
 public:
  Doubling(Rank rank, Rank ranks)
      : stages_(static_cast<std::uint32_t>(std::bit_width(ranks)) - 1),
        above_(rank + (Rank{1} << stages_)),
        folded_(above_ < ranks) {}

  [[nodiscard]] std::uint32_t stages() const { return stages_; }
  [[nodiscard]] bool folded() const { return folded_; }  // a rank from m on gives to this one
  [[nodiscard]] Rank above() const { return above_; }
  // The number of the gate that combines stage j; for stage 0, of the gate where stage 1 begins. If
  // the rank is folded, the latter is gate 1, which combines with the rank from m on.
  [[nodiscard]] std::uint32_t of_stage(std::uint32_t stage) const {
    if (stage == stages_ && ends_at_start()) return 0;
    return (folded_ ? 1U : 0U) + stage;
  }
  [[nodiscard]] bool ends_at_start() const { return !folded_ && stages_ > 1; }
  [[nodiscard]] std::uint32_t count() const { return of_stage(stages_ - 1) + (ends_at_start() ? 1 : 2); }

 private:
  std::uint32_t stages_;
  Rank above_;
  bool folded_;
};

// The gates of a rank from m on: it gives, and gets.
std::vector<GateLinks> gates_above(Rank rank, Rank ranks) {
  const Rank below = rank - std::bit_floor(ranks);
  const Doubling its(below, ranks);
  GateLinks start;
  start.to_rank = start.from_rank = below;
  start.to_gate = 1;
  start.from_gate = its.of_stage(its.stages());
  return {start};
}

}  // namespace

std::vector<GateLinks> gates_of(Rank rank, Rank ranks) {
  if (rank >= std::bit_floor(ranks)) return gates_above(rank, ranks);
  const Doubling mine(rank, ranks);
  std::vector<GateLinks> gates(mine.count());
  for (std::uint32_t stage = 1; stage <= mine.stages(); ++stage) {
    const Rank partner = rank ^ (Rank{1} << (stage - 1));
    const Doubling its(partner, ranks);
    const std::uint32_t before = mine.of_stage(stage - 1);
    const std::uint32_t here = mine.of_stage(stage);
    gates[before].to_local = here;
    gates[before].to_rank = gates[here].from_rank = partner;
    gates[before].to_gate = its.of_stage(stage);
    gates[here].from_local = before;
    gates[here].from_gate = its.of_stage(stage - 1);
  }
  if (!mine.ends_at_start()) {
    const std::uint32_t last = mine.of_stage(mine.stages());
    gates[last].to_local = 0;
    gates[0].from_local = last;
    if (mine.folded()) {
      gates[last].to_rank = mine.above();
      gates[last].to_gate = 0;
    }
  }
  if (mine.folded()) {
    gates[0].to_local = 1;
    gates[1].from_local = 0;
    gates[1].from_rank = mine.above();
    gates[1].from_gate = 0;
  }
  return gates;
}

namespace {

using transport::GateOperator;

enum class Kind : std::uint8_t { other, without_sign, with_sign, floating };

Kind kind_of(heddle_type type) {
  switch (type) {
    case HEDDLE_UINT8:
    case HEDDLE_UINT16:
    case HEDDLE_UINT32:
    case HEDDLE_UINT64:
      return Kind::without_sign;
    case HEDDLE_INT8:
    case HEDDLE_INT16:
    case HEDDLE_INT32:
    case HEDDLE_INT64:
      return Kind::with_sign;
    case HEDDLE_FLOAT:
    case HEDDLE_DOUBLE:
      return Kind::floating;
    default:
      return Kind::other;
  }
}

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

}  // namespace

std::uint64_t GateReduction::ones() const {
  return ~std::uint64_t{0} >> (64 - 8 * element_bytes_);
}

std::optional<GateReduction> GateReduction::of(const Call& call, std::uint32_t most_words) {
  GateReduction made;
  if (call.operation == Operation::barrier) return made;
  if (call.operation != Operation::allreduce && call.operation != Operation::reduce) return std::nullopt;
  const auto named = reduction_of(call.reduction_name);
  if (!named || call.bytes == 0) return std::nullopt;
  const Kind kind = kind_of(named->type);
  if (kind == Kind::other) return std::nullopt;
  const bool whole = kind != Kind::floating;
  made.bytes_ = call.bytes;
  made.element_bytes_ = call.element_bytes;
  std::uint64_t words = call.bytes / call.element_bytes;
  const auto as = [&](GateOperator op, Form form) {
    made.op_ = op;
    made.form_ = form;
  };
  switch (named->op) {
    case HEDDLE_SUM:
      if (whole) as(GateOperator::sum, Form::sum);
      break;
    case HEDDLE_MIN:
    case HEDDLE_MAX:
      made.least_ = named->op == HEDDLE_MIN;
      as(GateOperator::max, !whole                    ? Form::float_order
                            : kind == Kind::with_sign ? Form::signed_order
                                                      : Form::unsigned_order);
      break;
    case HEDDLE_BAND:
      as(GateOperator::band, Form::bits);
      break;
    case HEDDLE_BOR:
      as(GateOperator::bor, Form::bits);
      break;
    case HEDDLE_BXOR:
      as(GateOperator::bxor, Form::bits);
      break;
    case HEDDLE_LAND:
      as(GateOperator::band, Form::truth);
      break;
    case HEDDLE_LOR:
      as(GateOperator::bor, Form::truth);
      break;
    case HEDDLE_LXOR:
      as(GateOperator::bxor, Form::truth);
      break;
    default:
      break;
  }
  if (made.form_ == Form::bits) words = (call.bytes + kWordBytes - 1) / kWordBytes;
  if (made.form_ == Form::none || words > most_words) return std::nullopt;
  made.words_ = static_cast<std::uint32_t>(words);
  return made;
}

// Returns the bits of a word that has the order, or the sum, of the element with these bits.
std::uint64_t GateReduction::encoded(std::uint64_t element) const {
  const std::uint64_t all = ones();
  const std::uint64_t sign = all ^ all >> 1;
  switch (form_) {
    case Form::truth:
      return element != 0 ? 1 : 0;
    case Form::signed_order:
      element ^= sign;
      break;
    case Form::float_order: {
      const std::uint64_t infinity = element_bytes_ == 4 ? 0x7F80'0000 : 0x7FF0'0000'0000'0000;
      if ((element & ~sign) > infinity) return all;
      element = (element & sign) != 0 ? all ^ element : element | sign;
      break;
    }
    default:
      break;
  }
  return least_ ? all ^ element : element;
}

std::uint64_t GateReduction::decoded(std::uint64_t word) const {
  const std::uint64_t all = ones();
  const std::uint64_t sign = all ^ all >> 1;
  const bool a_nan = form_ == Form::float_order && word == all;
  if (a_nan) return all ^ sign;
  if (least_) word ^= all;
  if (form_ == Form::signed_order) return word ^ sign;
  if (form_ != Form::float_order) return word;
  return (word & sign) != 0 ? word ^ sign : all ^ word;
}

void GateReduction::give(const void* send, std::span<std::uint64_t> words) const {
  const auto* from = static_cast<const std::byte*>(send);
  const std::uint64_t step = form_ == Form::bits ? kWordBytes : element_bytes_;
  for (std::uint32_t i = 0; i < words_; ++i) {
    std::uint64_t element = 0;
    // The machines are little-endian: the element's bytes are the word's lowest.
    std::memcpy(&element, from + i * step, std::min(step, bytes_ - i * step));
    words[i] = form_ == Form::bits ? element : encoded(element);
  }
}

void GateReduction::take(std::span<const std::uint64_t> words, void* receive) const {
  auto* to = static_cast<std::byte*>(receive);
  const std::uint64_t step = form_ == Form::bits ? kWordBytes : element_bytes_;
  for (std::uint32_t i = 0; i < words_; ++i) {
    const std::uint64_t element = form_ == Form::bits ? words[i] : decoded(words[i]);
    std::memcpy(to + i * step, &element, std::min(step, bytes_ - i * step));
  }
}

static_assert(GateLinks::kNone == transport::GateWires::kNone);

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
  std::vector<GateLinks> graph = gates_of(rank, ranks);
  auto chain = gates->open(static_cast<std::uint32_t>(graph.size()), name.lane);
  if (!chain) return nullptr;
  return std::shared_ptr<TeamGates>(new TeamGates(std::move(graph), std::move(*chain), name.network));
}

// Two members have at most one connection in each direction (gates_of()).
void TeamGates::tell(Rank member, GateKeys* keys) const {
  std::uint32_t sends = GateLinks::kNone;
  std::uint32_t gets = GateLinks::kNone;
  for (std::uint32_t gate = 0; gate < graph_.size(); ++gate) {
    if (graph_[gate].to_rank == member) sends = gate;
    if (graph_[gate].from_rank == member) gets = gate;
  }
  keys->gates = static_cast<std::uint32_t>(graph_.size());
  keys->lane = chain_->lane();
  keys->network = network_;
  keys->key = chain_->key(sends, gets);
}

bool TeamGates::agreed(std::span<const SetupRecord> records) const {
  const auto first = records[0].keys.get<GateKeys>();
  return std::ranges::all_of(records, [&](const SetupRecord& record) {
    const auto its = record.keys.get<GateKeys>();
    return its.lane == first.lane && its.network == first.network;
  });
}

base::Status TeamGates::bind(std::span<const SetupRecord> records) {
  if (bound_) return HEDDLE_DONE;
  std::vector<GateKeys> members;
  for (const SetupRecord& record : records) members.push_back(record.keys.get<GateKeys>());
  std::vector<transport::GateWires> wires;
  wires.reserve(graph_.size());
  for (const GateLinks& gate : graph_) {
    transport::GateWires& its = wires.emplace_back();
    its.from_local = gate.from_local;
    its.to_local = gate.to_local;
    if (gate.from_rank != GateLinks::kNone) its.from_peer = &members[gate.from_rank].key;
    if (gate.to_rank != GateLinks::kNone) its.to_peer = &members[gate.to_rank].key;
  }
  const base::Status status = chain_->bind(wires);
  bound_ = status == HEDDLE_DONE;
  return status;
}

// The network that blocking calls share has number 0.
std::shared_ptr<TeamGates> TeamNetworks::open(const Team& team, bool common) {
  if (common && common_ == Common::decided) return offered_ = gates_;
  if (common) common_ = Common::asked;
  if (rejected_) return nullptr;
  const std::uint32_t network = common ? 0 : made_ + 1;
  transport::BarrierGates* interface = team.context().transport().gates();
  return offered_ = TeamGates::open(interface, team.rank(), team.size(), {network, team.rank_in_job(0) + made_});
}

bool TeamNetworks::decided(base::Status status, bool offloaded) {
  const std::shared_ptr<TeamGates> its = std::exchange(offered_, nullptr);
  const bool by_gates = offloaded && its != nullptr;
  if (status == HEDDLE_DONE) ++made_;
  if (common_ == Common::asked) {
    common_ = status == HEDDLE_DONE ? Common::decided : Common::unknown;
    if (status == HEDDLE_DONE && by_gates) gates_ = its;
  }
  if (status != HEDDLE_ERR_SYSTEM || !by_gates) return false;
  rejected_ = true;
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

void GateOffload::tell(Rank member, SetupRecord* record) const {
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
