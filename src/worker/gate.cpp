#include "worker/gate.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "worker/gate_modes.hpp"
#include "worker/sharing.hpp"

namespace heddle::worker {
namespace {

// The cost of a helper's visit for the thread that owns the worker: that thread has to fetch lines
// of the worker again. For an exclusive worker it includes the interrupt by which the claim is made
// known (membarrier).
constexpr std::uint32_t kVisitNs = 200;
constexpr std::uint32_t kClaimNs = 1000;

template <class Kind>
std::unique_ptr<Gate> make_gate(Worker& worker, std::unique_ptr<Inbox> inbox) {
  return std::make_unique<Kind>(worker, std::move(inbox));
}

constexpr std::array kModes = {
    Mode{Sharing::exclusive, "exclusive", "this thread advances it", false, true, kClaimNs, make_gate<ExclusiveGate>},
    Mode{Sharing::shared, "shared", "this thread advances it, or who is inside", false, true, kVisitNs,
         make_gate<SharedGate>},
    Mode{Sharing::offload, "offload", "its executor advances it, and this thread", true, false, kVisitNs,
         make_gate<OffloadGate>},
    Mode{Sharing::delegate, "delegate", "this thread advances it, or who is inside", true, true, kVisitNs,
         make_gate<DelegateGate>},
    Mode{Sharing::automatic, "auto", "this thread advances it, or who is inside", true, true, kClaimNs,
         make_gate<AutoGate>},
};
static_assert(std::ranges::is_sorted(kModes, {}, &Mode::sharing));

}  // namespace

std::span<const Mode> modes() {
  return kModes;
}

const Mode* mode_named(std::string_view name) {
  const auto found = std::ranges::find(kModes, name, [](const Mode& mode) { return std::string_view(mode.name); });
  return found == kModes.end() ? nullptr : &*found;
}

const Mode* mode_numbered(std::uint32_t number) {
  const auto found = std::ranges::find(kModes, number, [](const Mode& mode) { return std::uint32_t(mode.sharing); });
  return found == kModes.end() ? nullptr : &*found;
}

std::string mode_names() {
  std::string names;
  for (const Mode& mode : kModes) (names += names.empty() ? "" : ", ") += mode.name;
  return names;
}

std::unique_ptr<Gate> Gate::make(Worker& worker, Sharing sharing, std::uint32_t records, OffloadPolicy small) {
  const Mode& mode = *mode_numbered(static_cast<std::uint32_t>(sharing));
  std::unique_ptr<SmallOffload> policy;
  if (mode.registers && small != OffloadPolicy::off) policy = std::make_unique<SmallOffload>(small, mode.visit_ns);
  std::unique_ptr<Inbox> inbox;
  if (mode.queues || policy != nullptr) inbox = std::make_unique<Inbox>(worker, records, std::move(policy));
  return mode.make(worker, std::move(inbox));
}

Gate::Gate(Worker& worker, std::unique_ptr<Inbox> inbox, bool leaves_all)
    : worker_(worker),
      inbox_(std::move(inbox)),
      registers_(inbox_ != nullptr && inbox_->small_offload() != nullptr),
      leaves_all_(leaves_all) {}

Gate::~Gate() = default;

void Gate::end() {
  visit([this] {
    worker_.completer().cancel_all(HEDDLE_ERR_CANCELLED);
    if (inbox_ != nullptr) inbox_->cancel_all(HEDDLE_ERR_CANCELLED);
  });
}

bool Gate::enter() {
  if (!let_in()) return false;
  mark_inside();
  count_entry();
  show_entry();
  return true;
}

bool Gate::enter_at_once() {
  if (!let_in_at_once()) return false;
  mark_inside();
  count_entry();
  show_entry();
  return true;
}

bool Gate::enter_unless_held() {
  if (!let_in_unless_held()) return false;
  mark_inside();
  count_entry();
  show_entry();
  return true;
}

void Gate::leave() {
  show_exit();
  const bool call = must_call_helpers();
  let_out();
  if (call) wake_helpers();
}

void Gate::wake_helpers() {
  worker_.context().helpers().wake();
}

[[gnu::cold]] bool Gate::leaves_under_way() const {
  return leaves_others_commands() || queued() || worker_.completer().under_way();
}

bool Gate::enter_as_helper(std::uint32_t number, bool urgent) {
  if (!let_in_helper(number, urgent)) return false;
  mark_inside();
  show_entry();
  helper_inside_ = (number & queue::SystemHandover::kStays) == 0;
  // Other threads may leave their commands to a thread of the application that visits as a helper,
  // and that thread may leave them under way. A helper that is about to sleep looks at this count.
  if (counts_visitors() && !helper_inside_) count_entry();
  return true;
}

void Gate::leave_as_helper() {
  show_exit();
  let_out_helper(std::exchange(helper_inside_, false));
}

int Gate::progress() {
  Place* const place = engine::inside_of() == nullptr ? enter_own() : nullptr;
  if (place == nullptr) return progress_any();
  mark_inside();
  count_poll();
  const int events = worker_.completer().progress();
  mark_outside();
  leave_own(place, HEDDLE_POSTED);
  return events;
}

int Gate::progress_any() {
  if (engine::inside_of() != nullptr || inside()) [[unlikely]]
    return engine::reject_progress();
  if (!may_advance() || !enter_at_once()) return 0;
  count_poll();
  const std::size_t started = inbox_ != nullptr ? drain() : 0;
  const int events = worker_.completer().progress();
  leave();
  return events < 0 ? events : events + static_cast<int>(started);
}

base::Status CallStart::start(Worker& worker) const {
  // whoever else is inside leaves it to the executor
  if (use(worker) != nullptr && !worker.gate()->may_call()) return HEDDLE_AGAIN;
  const engine::Inside inside(worker.core());  // it may not wait
  engine::call(fn, arg);
  worker.core().note_moved();
  return HEDDLE_DONE;
}

void CallStart::ended(Worker& worker, base::Status status) const {
  if (status <= HEDDLE_DONE && worker.gate() != nullptr) worker.gate()->call_ends();
  worker.core().operations.end_queued(status, completion, rank);
}

// ---- small-message offload ----------------------------------------------------------------------

base::Status Gate::post_or_register(transport::Command& command, const engine::CallersCompletion& completion) {
  if (command.opcode != transport::Opcode::message) return post_or_queue(command, completion);
  if (inside()) return post_or_queue(command, completion);
  // A message that would be copied into the queue can as well be posted. Without a completion
  // nobody could know when the source is free.
  if (command.bytes <= Inbox::kMostCopied || !completion.notifies()) return post_or_queue(command, completion);
  return register_or_post(command, completion);
}

base::Status Gate::register_or_post(transport::Command& command, const engine::CallersCompletion& completion) {
  Helpers& helpers = worker_.context().helpers();
  base::Clock& clock = worker_.context().clock();
  SmallOffload& small = *inbox_->small_offload();
  const std::uint64_t bytes = command.packet_bytes();
  const SmallOffload::Plan plan = small.plan(bytes, helpers.rounds(), helpers.asleep() || helpers.aside());
  const std::uint64_t begin = plan.timed ? clock.now_ns() : 0;
  if (plan.registers && inbox_->put_registered(command, completion) != HEDDLE_AGAIN) {
    small.count_registered();
    if (plan.timed) small.registered(clock.now_ns() - begin);
    // Partner: the barrier in Helpers::sleep(), between its store and its look at the queue.
    if (helpers.asleep()) helpers.wake();
    return HEDDLE_POSTED;
  }
  const base::Status status = post_or_queue(command, completion);
  if (plan.timed && !plan.registers && status != HEDDLE_AGAIN) small.submitted(bytes, clock.now_ns() - begin);
  return status;
}

}  // namespace heddle::worker
