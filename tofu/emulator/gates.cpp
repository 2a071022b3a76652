#include "tofu/emulator/gates.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
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
class Gates::Use {
 public:
  Use(Gates& gates, const Process& process, utofu_vbg_id_t id) {
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

void Gates::note_waiting() {
  waiting_.store(!graph_.outgoing().empty(), std::memory_order_seq_cst);
}

void Gates::receive(const PacketHead& head, const std::byte* data) {
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

std::size_t Gates::progress(Process& process, Engine& engine) {
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
    const Owner owner = process.world().gate_owner(node, tni, gate);
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

int Gates::allocate(Process& process, std::uint16_t tni, std::size_t count, unsigned long flags, utofu_vbg_id_t* ids) {
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

int Gates::free(Process& process, const utofu_vbg_id_t* ids, std::size_t count) {
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

bool Gates::local_to(utofu_vbg_id_t id, std::uint16_t tni) const {
  const auto owned = owned_.find(id);
  return owned != owned_.end() && owned->second.tni == tni;
}

bool Gates::check_setting(const Process& process, const utofu_vbg_setting& setting, int* error) const {
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

int Gates::set(const Process& process, const utofu_vbg_setting* settings, std::size_t count) {
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

int Gates::start(Process& process, utofu_vbg_id_t id, const GateValue& value) {
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

int Gates::fetch(Process& process, utofu_vbg_id_t id, GateData data, GateValue* result) {
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
