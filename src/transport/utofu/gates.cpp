#include "transport/utofu/gates.hpp"

#include <cstring>
#include <vector>

namespace heddle::transport::utofu {
namespace {

struct KeyOfGates {
  std::uint64_t sends = 0;  // UTOFU_VBG_ID_NULL: none
  std::uint64_t gets = 0;
  std::uint64_t tni = 0;
  std::uint64_t seal = 0;
};
static_assert(sizeof(KeyOfGates) == kGateKeyBytes);

utofu_reduce_op operator_of(GateOperator op) {
  switch (op) {
    case GateOperator::band:
      return UTOFU_REDUCE_OP_BAND;
    case GateOperator::bor:
      return UTOFU_REDUCE_OP_BOR;
    case GateOperator::bxor:
      return UTOFU_REDUCE_OP_BXOR;
    case GateOperator::max:
      return UTOFU_REDUCE_OP_MAX;
    case GateOperator::sum:
      return UTOFU_REDUCE_OP_SUM;
    case GateOperator::barrier:
      break;
  }
  return UTOFU_REDUCE_OP_BARRIER;
}

class Chain final : public GateChain {
 public:
  Chain(Device& device, utofu_tni_id_t tni, std::vector<utofu_vbg_id_t> ids)
      : device_(device), library_(device.library()), call_(library_.call()), tni_(tni), ids_(std::move(ids)) {}
  ~Chain() override {
    if (!left_) library_.free_gates(&ids_);
  }

  [[nodiscard]] std::uint32_t lane() const override { return tni_; }
  [[nodiscard]] GateKey key(std::uint32_t sends, std::uint32_t gets) const override;
  [[nodiscard]] base::Status bind(std::span<const GateWires> wires) override;
  [[nodiscard]] base::Status start(GateOperator op, std::span<const std::uint64_t> words) override;
  [[nodiscard]] base::Status poll(std::span<std::uint64_t> words) override;
  void leave() override { left_ = true; }

 private:
  // waiting: still to be begun, since the gate was busy
  enum class State : std::uint8_t { idle, waiting, running };
  [[nodiscard]] utofu_vbg_id_t id_of(std::uint32_t gate) const {
    return gate == GateWires::kNone ? UTOFU_VBG_ID_NULL : ids_[gate];
  }
  base::Status set(std::uint32_t gate, const GateWires& wires, utofu_vbg_setting* setting) const;
  base::Status key_of(const GateKey* key, KeyOfGates* name) const;
  base::Status begin();
  base::Status fail(int code);

  Device& device_;
  Library& library_;
  const Functions call_;
  const utofu_tni_id_t tni_;
  std::vector<utofu_vbg_id_t> ids_;
  bool left_ = false;
  State state_ = State::idle;
  GateOperator op_ = GateOperator::barrier;
  std::vector<std::uint64_t> words_;   // of the operation; bind() reserves room for the most words
  base::Status status_ = HEDDLE_DONE;  // an error: of all later operations, too
};

GateKey Chain::key(std::uint32_t sends, std::uint32_t gets) const {
  KeyOfGates name{id_of(sends), id_of(gets), tni_, 0};
  seal(&name, device_.secret());
  GateKey key;
  std::memcpy(key.bytes.data(), &name, sizeof name);
  return key;
}

base::Status Chain::key_of(const GateKey* key, KeyOfGates* name) const {
  *name = {UTOFU_VBG_ID_NULL, UTOFU_VBG_ID_NULL, tni_, 0};
  if (key == nullptr) return HEDDLE_DONE;
  std::memcpy(name, key->bytes.data(), sizeof *name);
  if (sealed(*name, device_.secret()) && name->tni == tni_) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes are not the key of barrier gates of this job on TNI %u",
                    unsigned{tni_});
}

base::Status Chain::set(std::uint32_t gate, const GateWires& wires, utofu_vbg_setting* setting) const {
  for (const std::uint32_t local : {wires.from_local, wires.to_local}) {
    if (local == GateWires::kNone || local < ids_.size()) continue;
    return base::fail(HEDDLE_ERR_RANGE, "gate %u is connected with gate %u; there are %zu", gate, local, ids_.size());
  }
  KeyOfGates from;
  KeyOfGates to;
  if (const base::Status status = key_of(wires.from_peer, &from); status != HEDDLE_DONE) return status;
  if (const base::Status status = key_of(wires.to_peer, &to); status != HEDDLE_DONE) return status;
  const bool nothing = (wires.from_peer != nullptr && from.sends == UTOFU_VBG_ID_NULL) ||
                       (wires.to_peer != nullptr && to.gets == UTOFU_VBG_ID_NULL);
  if (nothing) return base::fail(HEDDLE_ERR_RANGE, "gate %u is connected with a rank that has no gate for it", gate);
  *setting = {id_of(gate), id_of(wires.from_local), from.sends, id_of(wires.to_local), to.gets, {}};
  for (std::uint8_t& coordinate : setting->dst_path_coords) coordinate = UTOFU_PATH_COORD_NULL;
  return HEDDLE_DONE;
}

base::Status Chain::bind(std::span<const GateWires> wires) {
  if (wires.size() != ids_.size()) {
    return base::fail(HEDDLE_ERR_RANGE, "wires of %zu gates; the chain has %zu", wires.size(), ids_.size());
  }
  std::vector<utofu_vbg_setting> settings(wires.size());
  for (std::uint32_t gate = 0; gate < wires.size(); ++gate) {
    if (const base::Status status = set(gate, wires[gate], &settings[gate]); status != HEDDLE_DONE) return status;
  }
  words_.reserve(library_.gate_words());
  return library_.set_gates(&settings);
}

base::Status Chain::fail(int code) {
  state_ = State::idle;
  if (code == UTOFU_ERR_BARRIER_MISMATCH) {
    status_ = base::fail(HEDDLE_ERR_ARGUMENT, "ranks have begun different operations on barrier gates");
  } else {
    status_ =
        base::fail(HEDDLE_ERR_SYSTEM, "an operation on barrier gates has failed: %s (%d)", error_name(code), code);
  }
  return status_;
}

// A gate whose last result was fetched should not be busy, but no document rules it out.
base::Status Chain::begin() {
  before_signal();
  const int code = op_ == GateOperator::barrier
                       ? call_.barrier(ids_[0], 0)
                       : call_.reduce_uint64(ids_[0], operator_of(op_), words_.data(), words_.size(), 0);
  if (code != UTOFU_SUCCESS && code != UTOFU_ERR_BUSY) return fail(code);
  state_ = code == UTOFU_SUCCESS ? State::running : State::waiting;
  return HEDDLE_DONE;
}

base::Status Chain::start(GateOperator op, std::span<const std::uint64_t> words) {
  if (status_ != HEDDLE_DONE) return status_;
  if (state_ != State::idle) return base::fail(HEDDLE_ERR_STATE, "an operation is under way on these barrier gates");
  op_ = op;
  words_.assign(words.begin(), words.end());
  return begin();
}

base::Status Chain::poll(std::span<std::uint64_t> words) {
  if (status_ != HEDDLE_DONE || state_ == State::idle) return status_;
  if (state_ == State::waiting) {
    const base::Status status = begin();
    return status == HEDDLE_DONE ? HEDDLE_AGAIN : status;
  }
  const int code = op_ == GateOperator::barrier ? call_.poll_barrier(ids_[0], 0)
                                                : call_.poll_reduce_uint64(ids_[0], 0, words.data());
  if (code == UTOFU_ERR_NOT_COMPLETED) return HEDDLE_AGAIN;
  if (code != UTOFU_SUCCESS) return fail(code);
  after_notice();
  state_ = State::idle;
  return HEDDLE_DONE;
}

}  // namespace

base::Result<std::unique_ptr<GateChain>> Gates::open(std::uint32_t gates, std::uint32_t lane) {
  Library& library = device_.library();
  const utofu_tni_id_t tni = library.gate_tni(lane);
  std::vector<utofu_vbg_id_t> ids(gates);
  const base::Status status =
      library.take_gates(tni, device_.environment().config.number(base::Var::utofu_gates), &ids);
  if (status != HEDDLE_DONE) return status;
  return std::unique_ptr<GateChain>(std::make_unique<Chain>(device_, tni, std::move(ids)));
}

}  // namespace heddle::transport::utofu
