#include "worker/debug_board.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "engine/debug_directory.hpp"
#include "worker/report.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {

DebugBoard::~DebugBoard() {
  if (begun_) hide_context(context_);
}

void DebugBoard::begin(std::uint32_t rank, std::uint32_t size) {
  context_.rank = rank;
  context_.size = size;
  context_.process = static_cast<std::uint64_t>(::getpid());
  begun_ = true;
  show_context(context_);
}

void DebugBoard::add(Worker& worker) {
  const auto free = std::ranges::find(workers_, nullptr, [](const auto& row) { return row.first; });
  tap::DebugWorker* shown = free != workers_.end() ? free->second.get() : nullptr;
  if (shown == nullptr) {
    shown = workers_.emplace_back(&worker, std::make_unique<tap::DebugWorker>()).second.get();
    shown->next = context_.workers;
    context_.workers = shown;
  } else {
    free->first = &worker;
  }
  shown->value_count = shown->row_count = 0;
  show(worker, *shown);
  shown->open = 1;
}

void DebugBoard::remove(const Worker& worker) {
  const auto row = std::ranges::find(workers_, &worker, [](const auto& one) { return one.first; });
  if (row == workers_.end()) return;
  row->second->open = 0;
  row->first = nullptr;
}

DebugBoard::Row DebugBoard::enter(std::uint32_t thread) noexcept {
  const auto is_free = [](const auto& wait) { return wait->waits == tap::DebugWaiting::no; };
  const auto free = std::ranges::find_if(waits_, is_free);
  tap::DebugWait* wait = free != waits_.end() ? free->get() : nullptr;
  if (wait == nullptr) {
    try {
      wait = waits_.emplace_back(std::make_unique<tap::DebugWait>()).get();
    } catch (const std::bad_alloc&) {
      return Row();
    }
    wait->next = context_.waits;
    context_.waits = wait;
  }
  wait->thread = thread;
  return Row(wait);
}

void DebugBoard::Row::begin(const char* call, std::uint32_t worker) {
  if (wait_ == nullptr) return;
  tap::set_text(wait_->call, call != nullptr ? call : "a loop of the program");
  wait_->awaited[0] = '\0';
  wait_->worker = worker;
  wait_->thing_count = 0;
  wait_->told_ns = 0;
  wait_->waits = tap::DebugWaiting::yes;
}

void DebugBoard::Row::returned() {
  if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::returned;
}

void DebugBoard::Row::resumed() {
  if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::yes;
}

void DebugBoard::Row::tell(const tap::Wait& wait, std::uint64_t waited_ns) {
  if (wait_ == nullptr) return;
  tap::set_text(wait_->call, wait.call.c_str());
  tap::set_text(wait_->awaited, wait.awaited.c_str());
  wait_->told_ns = waited_ns;
  wait_->thing_count = 0;
  for (const tap::Awaited& awaited : wait.things) {
    if (wait_->thing_count == tap::DebugWait::kMostThings) break;
    tap::DebugThing& thing = wait_->things[wait_->thing_count++];
    thing.cause = static_cast<std::uint32_t>(awaited.cause);
    thing.rank = awaited.rank;
    thing.worker = awaited.worker;
    tap::set_text(thing.what, awaited.what.c_str());
    tap::set_text(thing.tag, awaited.tag.c_str());
  }
}

}  // namespace heddle::engine
