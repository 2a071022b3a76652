#include "mpi/collective/schedule.hpp"

#include <algorithm>
#include <new>

#include "mpi/collective/engine_call.hpp"

namespace heddle::mpi {
namespace {

constexpr std::align_val_t kRoomAlignment{64};

}  // namespace

void StepSchedule::Freed::operator()(std::byte* memory) const {
  ::operator delete[](memory, kRoomAlignment);
}

StepSchedule::~StepSchedule() {
  if (listed_) remove_stepped(this);
  for (const auto& step : steps_) {
    if (!step->open) continue;
    if (form_ == Form::persistent)
      static_cast<void>(heddle_collective_free(step->collective));
    else
      static_cast<void>(heddle_collective_wait(step->collective, HEDDLE_FOREVER));
  }
  steps_.clear();  // waits for messages, whose memory follows
  for (Type* type : types_) release(type);
  for (Op* op : ops_) release(op);
}

// ---- making it ----------------------------------------------------------------------------------

std::byte* StepSchedule::room(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new[](bytes == 0 ? 1 : bytes, kRoomAlignment));
  std::unique_ptr<std::byte[], Freed> made(memory);
  rooms_.push_back(std::move(made));
  return memory;
}

void StepSchedule::hold(Type* type) {
  if (type->predefined || form_ == Form::blocking) return;
  types_.reserve(types_.size() + 1);
  types_.push_back(retain(type));
}

void StepSchedule::hold(Op* op) {
  if (form_ == Form::blocking) return;
  ops_.reserve(ops_.size() + 1);
  ops_.push_back(retain(op));
}

void StepSchedule::local(std::function<void()> action) {
  auto step = std::make_unique<Step>();
  step->action = std::move(action);
  steps_.push_back(std::move(step));
}

void StepSchedule::engine(EngineCall call) {
  auto step = std::make_unique<Step>();
  step->call = std::make_unique<EngineCall>(std::move(call));
  steps_.push_back(std::move(step));
}

void StepSchedule::use_messages() {
  const std::uint32_t sequence =
      comm_.collective_sequence.fetch_add(1, std::memory_order_relaxed) % InternalTag::kSequences;
  tag_ = InternalTag::kCollective + static_cast<int>(sequence);
}

void StepSchedule::messages() {
  steps_.push_back(std::make_unique<Step>());
}

void StepSchedule::send(Comm& comm, int rank, const void* data, std::size_t bytes) {
  steps_.back()->moves.push_back({&comm, rank, nullptr, static_cast<const std::byte*>(data), bytes});
}

void StepSchedule::receive(Comm& comm, int rank, void* data, std::size_t bytes) {
  static std::byte nothing;
  auto* to = data == nullptr ? &nothing : static_cast<std::byte*>(data);
  steps_.back()->moves.push_back({&comm, rank, to, nullptr, bytes});
}

void StepSchedule::compare(Call call) {
  comparison_ = std::make_unique<Comparison>(call, comm_, described);
  if (form_ != Form::nonblocking) wait_until(*comm_.lane, [&] { return compared(); });
}

bool StepSchedule::compared() {
  if (comparison_ != nullptr && comparison_->test()) comparison_.reset();
  return comparison_ == nullptr;
}

// ---- steps --------------------------------------------------------------------------------------

int StepSchedule::begin_engine(Step& step) {
  if (form_ == Form::persistent) return code_of(heddle_collective_start(step.collective));
  const int code = code_of(step.call->call(comm_.team, Form::nonblocking, &step.collective));
  step.open = code == MPI_SUCCESS;
  return code;
}

int StepSchedule::begin_moves(Step& step) {
  const std::size_t count = step.moves.size();
  if (step.live == nullptr && count > 0) {
    step.live = std::make_unique<InternalMessage[]>(count);
    step.pending.reserve(count);
  }
  step.pending.clear();
  step.code = MPI_SUCCESS;
  for (std::size_t i = 0; i < count; ++i) {
    const Move& move = step.moves[i];
    const int code = move.to != nullptr ? step.live[i].receive(*move.comm, move.rank, tag_, move.to, move.bytes)
                                        : step.live[i].send(*move.comm, move.rank, tag_, move.from, move.bytes);
    if (code != MPI_SUCCESS) return code;
    step.pending.push_back(i);
  }
  return MPI_SUCCESS;
}

int StepSchedule::begin(Step& step) {
  if (step.action) {
    step.action();
    return MPI_SUCCESS;
  }
  return step.call != nullptr ? begin_engine(step) : begin_moves(step);
}

bool StepSchedule::moves_ended(Step& step, int* code) {
  std::erase_if(step.pending, [&](std::size_t i) {
    int one = MPI_SUCCESS;
    if (!step.live[i].test(&one)) return false;
    if (one != MPI_SUCCESS) step.code = one;
    return true;
  });
  *code = step.code;
  return step.pending.empty();
}

bool StepSchedule::ended(Step& step, int* code) {
  *code = MPI_SUCCESS;
  if (step.action) return true;
  if (step.call == nullptr) return moves_ended(step, code);
  const heddle_status status = heddle_collective_test(step.collective);
  if (status == HEDDLE_AGAIN) return false;
  if (form_ == Form::nonblocking) step.open = false;
  *code = code_of(status);
  return true;
}

bool StepSchedule::advance_steps() {
  if (over_) return true;
  const bool compares = !compared();
  while (at_ < steps_.size() && code_ == MPI_SUCCESS) {
    Step& step = *steps_[at_];
    if (!begun_) {
      code_ = begin(step);
      if (code_ != MPI_SUCCESS) break;
      begun_ = true;
    }
    if (!ended(step, &code_)) return false;
    begun_ = false;
    ++at_;
    ++t_moves;
  }
  if (compares) return false;  // after an error too: a mismatch may be its cause
  over_ = true;
  return true;
}

bool StepSchedule::advance() {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  const bool over = advance_steps();
  busy_.store(false, std::memory_order_release);
  return over;
}

// ---- running it ---------------------------------------------------------------------------------

int StepSchedule::run_engine(Step& step) {
  const EngineCall& call = *step.call;
  if (!call.lists_blocks()) {
    const bool reduces = call.reduction.fn != nullptr || call.reduction.type != 0;
    return run_blocking(
        comm_, {call.what, call.send, call.receive, call.amount, call.root, reduces ? &call.reduction : nullptr});
  }
  return run_listed(comm_, call);
}

int StepSchedule::run() {
  for (const auto& step : steps_) {
    if (step->call != nullptr) {
      if (const int code = run_engine(*step); code != MPI_SUCCESS) return code;
      continue;
    }
    if (const int code = begin(*step); code != MPI_SUCCESS) return code;
    int code = MPI_SUCCESS;
    wait_until(*comm_.lane, [&] { return ended(*step, &code); });
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

int StepSchedule::make() {
  for (const auto& step : steps_) {
    if (step->call == nullptr) continue;
    if (const int code = code_of(step->call->call(comm_.team, Form::persistent, &step->collective));
        code != MPI_SUCCESS)
      return code;
    step->open = true;
  }
  return MPI_SUCCESS;
}

int StepSchedule::start() {
  at_ = 0;
  begun_ = false;
  code_ = MPI_SUCCESS;
  over_ = false;
  if (advance()) return code_;
  listed_ = true;
  add_stepped(this);
  return MPI_SUCCESS;
}

Stepped::Made StepSchedule::step() {
  const std::uint32_t before = t_moves;
  if (advance()) return Made::finished;
  return t_moves != before ? Made::moved : Made::nothing;
}

bool StepSchedule::test(Outcome* outcome) {
  if (!advance()) return false;
  outcome->code = code_;
  if (listed_) remove_stepped(this);
  listed_ = false;
  return true;
}

}  // namespace heddle::mpi
