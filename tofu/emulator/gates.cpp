#include "tofu/emulator/gates.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {

namespace {

__extension__ using Wide = __int128;

constexpr int kDigitBits = 32;
constexpr std::uint64_t kDigitMask = 0xFFFFFFFF;

std::uint64_t combined(std::uint8_t op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case UTOFU_REDUCE_OP_BAND:
      return a & b;
    case UTOFU_REDUCE_OP_BOR:
      return a | b;
    case UTOFU_REDUCE_OP_BXOR:
      return a ^ b;
    case UTOFU_REDUCE_OP_MAX:
      return std::max(a, b);
    default:
      return a + b;  // SUM
  }
}

}  // namespace

BlockSum BlockSum::of(double value) {
  BlockSum sum;
  if (value == 0) return sum;
  // value = mantissa * 2^(32 * place + shift)
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  exponent -= 53;
  const int place = exponent >= 0 ? exponent / kDigitBits : -((-exponent + kDigitBits - 1) / kDigitBits);
  const int shift = exponent - place * kDigitBits;
  const Wide wide = Wide{mantissa} << shift;  // below 2^84: three digits
  const std::int64_t sign = std::signbit(value) ? -1 : 1;
  for (int i = 0; i < 3; i++) {
    const auto digit_here = static_cast<std::uint64_t>(wide >> (kDigitBits * i)) & kDigitMask;
    sum.digit[static_cast<std::size_t>(2 - i)] = sign * static_cast<std::int64_t>(digit_here);
  }
  sum.top = place + 2;
  return sum;
}

void BlockSum::add(const BlockSum& other) {
  BlockSum low = other;
  if (low.top > top) std::swap(low, *this);
  if (low.top == kZero) return;
  const auto lower_by = static_cast<std::size_t>(top - low.top);
  for (std::size_t i = lower_by; i < digit.size(); i++) digit[i] += low.digit[i - lower_by];
}

double BlockSum::value() const {
  if (top == kZero) return 0;
  Wide wide = 0;
  for (const std::int64_t d : digit) wide = wide * (Wide{1} << kDigitBits) + d;
  return std::ldexp(static_cast<double>(wide), kDigitBits * (top - 3));
}

int GateValue::of_words(utofu_reduce_op op, const std::uint64_t* data, std::size_t count, GateValue* value) {
  if (op < UTOFU_REDUCE_OP_BAND || op > UTOFU_REDUCE_OP_SUM) return UTOFU_ERR_INVALID_OP;
  if (count < 1 || count > kMostWords) return UTOFU_ERR_INVALID_NUMBER;
  if (op == UTOFU_REDUCE_OP_MAXLOC && count % 2 != 0) return UTOFU_ERR_INVALID_NUMBER;  // pairs
  if (!data) return UTOFU_ERR_INVALID_POINTER;
  *value = {};
  value->data = GateData::words;
  value->op = static_cast<std::uint8_t>(op);
  value->count = static_cast<std::uint8_t>(count);
  std::copy_n(data, count, value->words.begin());
  return UTOFU_SUCCESS;
}

int GateValue::of_doubles(utofu_reduce_op op, const double* data, std::size_t count, GateValue* value) {
  if (op != UTOFU_REDUCE_OP_BFPSUM) return UTOFU_ERR_INVALID_OP;
  if (count < 1 || count > kMostDoubles) return UTOFU_ERR_INVALID_NUMBER;
  if (!data) return UTOFU_ERR_INVALID_POINTER;
  if (!std::all_of(data, data + count, [](double d) { return std::isfinite(d); })) return UTOFU_ERR_INVALID_DATA;
  *value = {};
  value->data = GateData::doubles;
  value->op = static_cast<std::uint8_t>(op);
  value->count = static_cast<std::uint8_t>(count);
  for (std::size_t i = 0; i < count; i++) value->sums[i] = BlockSum::of(data[i]);
  return UTOFU_SUCCESS;
}

void GateValue::combine(const GateValue& other) {
  if (other.mismatched || other.sequence != sequence || other.data != data || other.op != op || other.count != count)
    mismatched = 1;
  if (mismatched) return;
  if (data == GateData::doubles) {
    for (std::size_t i = 0; i < count; i++) sums[i].add(other.sums[i]);
  } else if (op == UTOFU_REDUCE_OP_MAXLOC) {
    // For equal values, the lower location wins, so that the result does not depend on the order.
    for (std::size_t i = 0; i < count; i += 2) {
      const bool theirs =
          other.words[i] > words[i] || (other.words[i] == words[i] && other.words[i + 1] < words[i + 1]);
      if (theirs) words[i] = other.words[i], words[i + 1] = other.words[i + 1];
    }
  } else {
    for (std::size_t i = 0; i < count; i++) words[i] = combined(op, words[i], other.words[i]);
  }
}

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

namespace {

static_assert(std::is_trivially_copyable_v<GateValue> && sizeof(GateValue) <= kMtu);

const char* what(SignalTrouble trouble) {
  switch (trouble) {
    case SignalTrouble::no_gate:
      return "is not set; every process must have set its gates before any starts an operation";
    case SignalTrouble::not_its_source:
      return "does not have the sender as a source; look at src_lcl_vbg_id and src_rmt_vbg_id of its setting";
    case SignalTrouble::too_far_ahead:
      return "has had no use for the last ones yet; in this graph a process can be operations ahead of the others";
    case SignalTrouble::none:
      break;
  }
  return "is well";
}

void complain(const GateSignal& signal, SignalTrouble trouble) {
  if (trouble == SignalTrouble::none) return;
  warn("a barrier gate's signal is lost: gate %#llx got one from gate %#llx, and %s",
       static_cast<unsigned long long>(signal.to), static_cast<unsigned long long>(signal.from), what(trouble));
  broken_rule("a barrier gate's signal was lost");
}

}  // namespace

// Detects two threads in calls on a gate without UTOFU_VBG_FLAG_THREAD_SAFE at the same time.
class EmulatedGates::Use {
 public:
  Use(EmulatedGates& gates, const Process& process, utofu_vbg_id_t id) {
    if (!process.settings().strict()) return;
    const std::lock_guard lock(gates.mutex_);
    const auto owned = gates.owned_.find(id);
    if (owned == gates.owned_.end() || owned->second.thread_safe) return;
    // the element does not move; freeing a gate while it is used breaks a rule of C as well
    users_ = &owned->second.users;
    if (users_->fetch_add(1, std::memory_order_relaxed) == 0) return;
    broken_rule(
        "two threads are in calls on barrier gate %#llx; allocate it with UTOFU_VBG_FLAG_THREAD_SAFE, or take turns",
        static_cast<unsigned long long>(id));
  }
  ~Use() {
    if (users_) users_->fetch_sub(1, std::memory_order_relaxed);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<std::uint32_t>* users_ = nullptr;
};

void EmulatedGates::note_waiting() {
  waiting_.store(!graph_.outgoing().empty(), std::memory_order_seq_cst);
}

void EmulatedGates::receive(const PacketHead& head, const std::byte* data) {
  GateSignal signal;
  if (head.bytes != sizeof signal.value) fatal("a gate's signal has %u bytes", static_cast<unsigned>(head.bytes));
  signal.from = head.source_vcq;
  signal.to = head.stadd;
  signal.model_ns = head.model_ns;
  std::memcpy(&signal.value, data, sizeof signal.value);
  SignalTrouble trouble = SignalTrouble::none;
  {
    const std::lock_guard lock(mutex_);
    trouble = graph_.receive(signal);
    note_waiting();
  }
  complain(signal, trouble);
}

std::size_t EmulatedGates::progress(Process& process, Engine& engine) {
  if (idle()) return 0;
  const Machine& machine = process.machine();
  std::size_t left = 0;
  const std::lock_guard lock(mutex_);
  for (; !graph_.outgoing().empty(); left++) {
    const GateSignal& signal = graph_.outgoing().front();
    std::uint32_t node = 0;
    std::uint16_t tni = 0;
    std::uint16_t gate = 0;
    if (!machine.decode_vbg(signal.to, &node, &tni, &gate)) fatal("a gate is set to signal to no gate");
    const DirectoryOwner owner = process.world().gate_owner(node, tni, gate);
    if (owner.somebody()) {
      PacketHead head;
      head.source_vcq = signal.from;
      head.stadd = signal.to;
      head.tni = static_cast<std::uint8_t>(tni);
      head.bytes = sizeof signal.value;
      head.length = sizeof signal.value;
      head.model_ns = process.model().signalled({process.node(), node, tni, kNoPath}, signal.model_ns);
      if (!engine.send_request(owner.process, PacketKind::gate, head, &signal.value)) break;
    } else {
      complain(signal, SignalTrouble::no_gate);
    }
    graph_.outgoing().pop_front();
  }
  note_waiting();
  return left;
}

int EmulatedGates::allocate(Process& process, std::uint16_t tni, std::size_t count, unsigned long flags,
                            utofu_vbg_id_t* ids) {
  World& world = process.world();
  const std::uint32_t node = process.node();
  std::vector<std::uint16_t> claimed;
  // The first is a start gate. The others only relay, so the few start gates are left for others.
  for (std::uint16_t gate = 0; gate < kStartGates && claimed.empty(); gate++)
    if (world.claim_gate(node, tni, gate)) claimed.push_back(gate);
  for (std::uint16_t gate = kStartGates; gate < kGates && !claimed.empty() && claimed.size() < count; gate++)
    if (world.claim_gate(node, tni, gate)) claimed.push_back(gate);
  if (claimed.size() < count) {
    for (const std::uint16_t gate : claimed) world.release_gate(node, tni, gate);
    return UTOFU_ERR_FULL;
  }
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; i++) {
      ids[i] = process.machine().vbg_id(node, tni, claimed[i]);
      graph_.add(ids[i], i == 0);
      Owned& owned = owned_[ids[i]];
      owned.tni = tni;
      owned.gate = claimed[i];
      owned.thread_safe = (flags & UTOFU_VBG_FLAG_THREAD_SAFE) != 0;
    }
  }
  for (std::size_t i = 0; i < count; i++) process.engine().add_user();
  return UTOFU_SUCCESS;
}

int EmulatedGates::free(Process& process, const utofu_vbg_id_t* ids, std::size_t count) {
  bool running = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; i++) {
      if (!graph_.has(ids[i]) || std::find(ids, ids + i, ids[i]) != ids + i) return UTOFU_ERR_INVALID_VBG_ID;
      running = running || graph_.is_running(ids[i]);
    }
    for (std::size_t i = 0; i < count; i++) {
      const auto owned = owned_.find(ids[i]);
      process.world().release_gate(process.node(), owned->second.tni, owned->second.gate);
      owned_.erase(owned);
      graph_.remove(ids[i]);
    }
  }
  for (std::size_t i = 0; i < count; i++) process.engine().remove_user();
  if (running) broken_rule("a barrier gate was freed whose operation is not over; poll it first");
  return UTOFU_SUCCESS;
}

bool EmulatedGates::local_to(utofu_vbg_id_t id, std::uint16_t tni) const {
  const auto owned = owned_.find(id);
  return owned != owned_.end() && owned->second.tni == tni;
}

bool EmulatedGates::check_setting(const Process& process, const utofu_vbg_setting& setting, int* error) const {
  *error = UTOFU_ERR_INVALID_VBG_ID;
  const auto owned = owned_.find(setting.vbg_id);
  if (owned == owned_.end()) return false;
  for (const utofu_vbg_id_t local : {setting.src_lcl_vbg_id, setting.dst_lcl_vbg_id})
    if (local != UTOFU_VBG_ID_NULL && !local_to(local, owned->second.tni)) return false;
  for (const utofu_vbg_id_t remote : {setting.src_rmt_vbg_id, setting.dst_rmt_vbg_id}) {
    std::uint32_t node = 0;
    std::uint16_t tni = 0;
    std::uint16_t gate = 0;
    if (remote != UTOFU_VBG_ID_NULL && !process.machine().decode_vbg(remote, &node, &tni, &gate)) return false;
  }
  // An input fed by both could not tell their signals apart.
  if (setting.src_lcl_vbg_id != UTOFU_VBG_ID_NULL && setting.src_lcl_vbg_id == setting.src_rmt_vbg_id) return false;
  *error = UTOFU_ERR_INVALID_PATH;
  return process.machine().path_of(setting.dst_path_coords).has_value();
}

int EmulatedGates::set(const Process& process, const utofu_vbg_setting* settings, std::size_t count) {
  bool running = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; i++) {
      int error = UTOFU_SUCCESS;
      if (!check_setting(process, settings[i], &error)) return error;
      running = running || graph_.is_running(settings[i].vbg_id);
    }
    for (std::size_t i = 0; i < count; i++) graph_.set(settings[i]);
  }
  if (running) broken_rule("a barrier gate was set whose operation is not over; poll it first");
  return UTOFU_SUCCESS;
}

int EmulatedGates::start(Process& process, utofu_vbg_id_t id, const GateValue& value) {
  const Use use(*this, process, id);
  process.engine().step();
  int result = UTOFU_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    if (!graph_.is_start(id) || !graph_.is_set(id)) return UTOFU_ERR_INVALID_VBG_ID;
    result = graph_.start(id, value, process.model().now_ns());
    note_waiting();
  }
  process.engine().ring();
  return result;
}

int EmulatedGates::fetch(Process& process, utofu_vbg_id_t id, GateData data, GateValue* result) {
  const Use use(*this, process, id);
  process.engine().step();
  GateSignal signal;
  int code = UTOFU_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    if (!graph_.is_start(id) || !graph_.is_set(id)) return UTOFU_ERR_INVALID_VBG_ID;
    code = graph_.fetch(id, data, &signal);
  }
  if (code == UTOFU_ERR_BARRIER_OTHER) broken_rule("a barrier gate was polled at which no operation was started");
  if (code == UTOFU_SUCCESS) {
    process.model().learned(signal.model_ns);
    *result = signal.value;
  }
  return code;
}

}  // namespace tofu_emulator
