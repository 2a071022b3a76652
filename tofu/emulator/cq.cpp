#include "tofu/emulator/cq.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {

EmulatedCq::EmulatedCq(Process& process, std::uint16_t tni, std::uint16_t number, CqMode mode, std::uint32_t generation)
    : process_(process),
      quick_(!process.settings().step && !process.model().on()),
      alone_(quick_ && mode != CqMode::shared),
      engine_bell_(&process.world().entry(process.number()).doorbell),
      tni_(tni),
      number_(number),
      mode_(mode),
      generation_(generation),
      depth_(process.settings().toq_depth),
      mrq_depth_(process.settings().mrq_depth),
      toq_(new Slot[depth_]),
      records_(new Record[depth_]()),
      mrq_(new Notice[mrq_depth_]),
      stags_(process.settings(), process.machine(), VcqPlace{process.node(), tni, number, 0, kNoPath}),
      slow_(quick_ ? UTOFU_ONESIDED_FLAG_DELAY_START : ~std::uint64_t{0}) {
  if (mode == CqMode::shared) kept_ = std::make_unique<std::array<Kept, kVcqsOfCq>>();
}

// Held commands do not make room by themselves, so they are started first.
int EmulatedCq::busy() {
  start_held();
  process_.engine().step();
  return UTOFU_ERR_BUSY;
}

void EmulatedCq::start_held() {
  const std::uint64_t held = held_.load(std::memory_order_relaxed);
  if (held == 0) return;
  held_.store(0, std::memory_order_relaxed);
  slow_ = quick_ ? UTOFU_ONESIDED_FLAG_DELAY_START : ~std::uint64_t{0};
  posted_.store(posted_.load(std::memory_order_relaxed) + held, std::memory_order_seq_cst);
  process_.engine().ring();
}

int EmulatedCq::post(EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata) {
  if (count > depth_) return post_as_room_comes(vcq, slots, count, cbdata);
  if (!has_room(count)) return busy();
  const std::uint64_t ready_ns = process_.model().on() ? process_.model().posted(vcq, static_cast<unsigned>(count)) : 0;
  put(vcq, slots, count, cbdata, ready_ns);
  return UTOFU_SUCCESS;
}

// Requires room for `count` slots.
void EmulatedCq::put(const EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata,
                     std::uint64_t ready_ns) {
  const std::uint64_t posted = posted_.load(std::memory_order_relaxed);
  const std::uint64_t held = held_.load(std::memory_order_relaxed);
  std::size_t begun = 0;  // slots up to the last command that is not delayed
  for (std::size_t i = 0; i < count;) {
    const std::uint64_t at = posted + held + i;
    const unsigned own = slots_of(slots[i]);
    records_[at & (depth_ - 1)] = {
        cbdata, ready_ns, UTOFU_SUCCESS, static_cast<std::uint8_t>(vcq.slot), static_cast<std::uint8_t>(own), Told::no};
    for (unsigned k = 0; k < own; ++k) toq_[(at + k) & (depth_ - 1)] = slots[i + k];
    i += own;
    if (!is_delayed(slots[i - 1])) begun = i;
  }
  if (begun == 0) {
    held_.store(held + count, std::memory_order_relaxed);
    slow_ = ~std::uint64_t{0};
    return;
  }
  held_.store(count - begun, std::memory_order_relaxed);
  slow_ = quick_ && begun == count ? UTOFU_ONESIDED_FLAG_DELAY_START : ~std::uint64_t{0};
  posted_.store(posted + held + begun, std::memory_order_seq_cst);
  process_.engine().ring();
}

int EmulatedCq::post_as_room_comes(EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata) {
  if (too_long(count, std::any_of(slots, slots + count, is_delayed))) return failed(UTOFU_ERR_INVALID_DESC);
  start_held();
  const std::uint64_t ready_ns = process_.model().on() ? process_.model().posted(vcq, static_cast<unsigned>(count)) : 0;
  for (std::size_t i = 0; i < count;) {
    std::size_t fit = 0;
    while (i + fit < count && has_room(fit + slots_of(slots[i + fit]))) fit += slots_of(slots[i + fit]);
    if (fit != 0) {
      put(vcq, &slots[i], fit, cbdata, ready_ns);
      i += fit;
    } else if (!reap_all() && process_.engine().step() == 0) {
      ::sched_yield();
    }
  }
  return UTOFU_SUCCESS;
}

bool EmulatedCq::reap_all() {
  const std::uint64_t executed = executed_.load(std::memory_order_acquire);
  std::uint64_t reaped = reaped_.load(std::memory_order_relaxed);
  if (reaped == executed) return false;
  if (kept_ == nullptr) kept_ = std::make_unique<std::array<Kept, kVcqsOfCq>>();
  alone_ = false;
  for (; reaped != executed; reaped += records_[reaped & (depth_ - 1)].slots) {
    const Record& record = records_[reaped & (depth_ - 1)];
    if (record.told != Told::no) (*kept_)[record.vcq].done.push_back({record.cbdata, record.model_ns, record.status});
  }
  reaped_.store(executed, std::memory_order_relaxed);
  return true;
}

// If there are more threads than cores, a polling program keeps the core from the engine that it
// waits for.
int EmulatedCq::fruitless() {
  if (process_.settings().step) {
    process_.engine().step();
  } else if (++fruitless_ >= process_.patience()) {
    fruitless_ = 0;
    ::sched_yield();
  }
  return UTOFU_ERR_NOT_FOUND;
}

int EmulatedCq::give(const Done& done, EmulatedVcq& vcq, void** cbdata) {
  *cbdata = done.cbdata;
  fruitless_ = 0;
  if (process_.model().on()) process_.model().polled(vcq, done.model_ns);
  return noted(done.status);
}

int EmulatedCq::poll_shared_tcq(EmulatedVcq& vcq, void** cbdata) {
  if (kept_ != nullptr && !(*kept_)[vcq.slot].done.empty()) {
    const Done done = (*kept_)[vcq.slot].done.front();
    (*kept_)[vcq.slot].done.pop_front();
    return give(done, vcq, cbdata);
  }
  const std::uint64_t executed = executed_.load(std::memory_order_acquire);
  std::uint64_t reaped = reaped_.load(std::memory_order_relaxed);
  while (reaped != executed) {
    const Record& record = records_[reaped & (depth_ - 1)];
    reaped += record.slots;
    reaped_.store(reaped, std::memory_order_relaxed);
    if (record.told == Told::no) continue;
    const Done done{record.cbdata, record.model_ns, record.status};
    if (record.vcq == vcq.slot) return give(done, vcq, cbdata);
    (*kept_)[record.vcq].done.push_back(done);
  }
  if (process_.model().on()) process_.model().found_nothing(vcq);
  return fruitless();
}

std::size_t EmulatedCq::unread_tcq(EmulatedVcq& vcq) {
  std::size_t count = kept_ != nullptr ? (*kept_)[vcq.slot].done.size() : 0;
  const std::uint64_t executed = executed_.load(std::memory_order_acquire);
  for (std::uint64_t at = reaped_.load(std::memory_order_relaxed); at != executed;) {
    const Record& record = records_[at & (depth_ - 1)];
    count += record.told != Told::no && record.vcq == vcq.slot ? 1 : 0;
    at += record.slots;
  }
  if (count == 0) (void)fruitless();
  return count;
}

int EmulatedCq::give(const Notice& found, EmulatedVcq& vcq, utofu_mrq_notice* notice) {
  *notice = found.notice;
  fruitless_ = 0;
  if (process_.model().on()) process_.model().polled(vcq, found.model_ns);
  return noted(found.status);
}

int EmulatedCq::poll_shared_mrq(EmulatedVcq& vcq, utofu_mrq_notice* notice) {
  if (kept_ != nullptr && !(*kept_)[vcq.slot].notices.empty()) {
    const Notice found = (*kept_)[vcq.slot].notices.front();
    (*kept_)[vcq.slot].notices.pop_front();
    return give(found, vcq, notice);
  }
  std::uint64_t read = read_.load(std::memory_order_relaxed);
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  for (; read != written; ++read) {
    const Notice& found = mrq_[read & (mrq_depth_ - 1)];
    if (found.vcq == vcq.slot) {
      const int status = give(found, vcq, notice);
      read_.store(read + 1, std::memory_order_release);
      return status;
    }
    if (found.vcq == kNobodys) continue;
    auto& others = (*kept_)[found.vcq].notices;
    if (others.size() >= mrq_depth_)
      fatal("nobody polls the MRQ for %s, whose %u notices (UTOFU_EMU_MRQ) have come while others of its CQ polled",
            process_.machine().name_of(id_of(found.vcq)).text, mrq_depth_);
    others.push_back(found);
  }
  read_.store(read, std::memory_order_release);
  if (process_.model().on()) process_.model().found_nothing(vcq);
  return fruitless();
}

std::size_t EmulatedCq::unread_mrq(EmulatedVcq& vcq) {
  std::size_t count = kept_ != nullptr ? (*kept_)[vcq.slot].notices.size() : 0;
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  for (std::uint64_t at = read_.load(std::memory_order_relaxed); at != written; ++at)
    count += mrq_[at & (mrq_depth_ - 1)].vcq == vcq.slot ? 1 : 0;
  if (count == 0) (void)fruitless();
  return count;
}

void EmulatedCq::visit_commands(std::uint64_t end, void (*visit)(void* context, const CqCommand& command),
                                void* context) {
  std::uint64_t at = executed_.load(std::memory_order_relaxed);
  if (outgoing_.begun) at += outgoing_.command.slots;
  while (at != end) {
    CqCommand command;
    (void)decode(process_.machine(), toq_[at & (depth_ - 1)], toq_[(at + 1) & (depth_ - 1)], &command);
    visit(context, command);
    at += records_[at & (depth_ - 1)].slots;
  }
}

void EmulatedCq::for_each_waiting(void (*visit)(void* context, const CqCommand& command), void* context) {
  visit_commands(posted_.load(std::memory_order_acquire), visit, context);
}

void EmulatedCq::for_each_waiting_or_held(void (*visit)(void* context, const CqCommand& command), void* context) {
  visit_commands(posted_.load(std::memory_order_acquire) + held_.load(std::memory_order_relaxed), visit, context);
}

std::size_t EmulatedCq::waiting_of(std::uint16_t slot) const {
  if (mode_ == CqMode::session) return 0;
  std::size_t count = 0;
  const std::uint64_t end = posted_.load(std::memory_order_acquire) + held_.load(std::memory_order_relaxed);
  for (std::uint64_t at = executed_.load(std::memory_order_relaxed); at != end;) {
    const Record& record = records_[at & (depth_ - 1)];
    if (record.vcq == slot) ++count;
    at += record.slots;
  }
  return count;
}

void EmulatedCq::set_vcq(std::uint16_t slot, EmulatedVcq* vcq) {
  vcqs_[slot] = vcq;
  if (kept_ == nullptr) return;
  // Completions and notices of the previous VCQ are dropped: the next VCQ in this slot is another
  // one.
  (*kept_)[slot] = Kept{};
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  for (std::uint64_t at = read_.load(std::memory_order_relaxed); at != written; ++at) {
    Notice& notice = mrq_[at & (mrq_depth_ - 1)];
    if (notice.vcq == slot) notice.vcq = kNobodys;
  }
  const std::uint64_t executed = executed_.load(std::memory_order_acquire);
  for (std::uint64_t at = reaped_.load(std::memory_order_relaxed); at != executed;) {
    Record& record = records_[at & (depth_ - 1)];
    if (record.vcq == slot) record.told = Told::no;
    at += record.slots;
  }
}

bool EmulatedCq::has_command() const {
  const std::uint64_t executed = executed_.load(std::memory_order_relaxed);
  if (executed == posted_.load(std::memory_order_seq_cst)) return false;
  return mode_ != CqMode::session || scheduled_ - executed >= records_[executed & (depth_ - 1)].slots;
}

bool EmulatedCq::take(std::uint64_t* ready_ns) {
  if (!has_command()) return false;
  const std::uint64_t at = executed_.load(std::memory_order_relaxed);
  const Record& record = records_[at & (depth_ - 1)];
  outgoing_ = CommandProgress{};
  if (!decode(process_.machine(), toq_[at & (depth_ - 1)], toq_[(at + 1) & (depth_ - 1)], &outgoing_.command))
    outgoing_.command.error = UTOFU_ERR_TCQ_DESC;
  outgoing_.command.slots = record.slots;
  outgoing_.slot = record.vcq;
  outgoing_.begun = true;
  *ready_ns = record.model_ns;
  if (mode_ == CqMode::session && process_.model().on())
    *ready_ns = std::max(*ready_ns, use_credits(outgoing_.command.slots));
  return true;
}

std::uint64_t EmulatedCq::use_credits(std::uint32_t slots) {
  while (slots > 0 && !credits_.empty()) {
    Credits& first = credits_.front();
    const std::uint32_t used = std::min(slots, first.slots);
    credit_ns_ = std::max(credit_ns_, first.model_ns);
    slots -= used;
    first.slots -= used;
    if (first.slots == 0) credits_.pop_front();
  }
  return credit_ns_;
}

void EmulatedCq::executed(int status, std::uint64_t model_ns) {
  const std::uint64_t at = executed_.load(std::memory_order_relaxed);
  Record& record = records_[at & (depth_ - 1)];
  record.status = status;
  record.model_ns = model_ns;
  record.told = status != UTOFU_SUCCESS                                 ? Told::failed
                : outgoing_.command.has(UTOFU_ONESIDED_FLAG_TCQ_NOTICE) ? Told::done
                                                                        : Told::no;
  outgoing_.begun = false;
  executed_.store(at + record.slots, std::memory_order_release);
}

void EmulatedCq::notify(std::uint16_t slot, const utofu_mrq_notice& notice, int status, std::uint64_t model_ns) {
  if (vcq(slot) == nullptr) return;
  const std::uint64_t written = written_.load(std::memory_order_relaxed);
  if (written - read_.load(std::memory_order_acquire) >= mrq_depth_)
    fatal(
        "the MRQ of %s has overflowed: %u notices (UTOFU_EMU_MRQ) were not polled; poll it more often, keep less in "
        "flight, or tell the program how deep it is (Heddle: HEDDLE_UTOFU_MRQ_DEPTH)",
        process_.machine().name_of(id_of(slot)).text, mrq_depth_);
  mrq_[written & (mrq_depth_ - 1)] = {notice, model_ns, status, slot};
  written_.store(written + 1, std::memory_order_release);
}

void EmulatedCq::credit(std::uint32_t slots, std::uint64_t model_ns) {
  if (mode_ != CqMode::session) {
    broken_rule("a message with SPS(%u) came for TNI %u CQ %u, which is not in session mode", slots, tni_, number_);
    return;
  }
  scheduled_ += slots;
  if (!process_.model().on()) return;
  const auto later = std::find_if(credits_.begin(), credits_.end(),
                                  [model_ns](const Credits& other) { return other.model_ns > model_ns; });
  credits_.insert(later, {model_ns, slots});
}

EmulatedCq::Pointers EmulatedCq::pointers() const {
  return {posted_.load(std::memory_order_acquire),  executed_.load(std::memory_order_relaxed),
          reaped_.load(std::memory_order_relaxed),  scheduled_,
          written_.load(std::memory_order_relaxed), read_.load(std::memory_order_acquire),
          held_.load(std::memory_order_relaxed)};
}

}  // namespace tofu_emulator
