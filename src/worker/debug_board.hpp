// The part of one context that a debugger sees (base/debug_view.hpp): its workers, and the threads
// that wait. Guarded by the mutex of the Inspection that owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tap/debug_view.hpp"
#include "tap/snapshot.hpp"

namespace heddle::engine {

class Worker;

class DebugBoard {
 public:
  DebugBoard() = default;
  DebugBoard(const DebugBoard&) = delete;
  DebugBoard& operator=(const DebugBoard&) = delete;
  ~DebugBoard();

  void begin(std::uint32_t rank, std::uint32_t size);
  // The handle of the context.
  void name(std::uint64_t handle) { context_.handle = handle; }
  // Throws std::bad_alloc.
  void add(Worker& worker);
  void remove(const Worker& worker);

  // The row of a thread that waits: shown from enter() until its end.
  class Row {
   public:
    Row() = default;
    explicit Row(tap::DebugWait* wait) : wait_(wait) {}
    Row(Row&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
    Row& operator=(Row&& other) noexcept {
      std::swap(wait_, other.wait_);
      return *this;
    }
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;
    ~Row() {
      if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::no;
    }
    // It waits in this call (null: the program has not said which).
    void begin(const char* call, std::uint32_t worker);
    void returned();
    void resumed();
    // Shows what the thread waits for, after it has waited so long.
    void tell(const tap::Wait& wait, std::uint64_t waited_ns);

   private:
    tap::DebugWait* wait_ = nullptr;  // null: there was no memory for one
  };
  [[nodiscard]] Row enter(std::uint32_t thread) noexcept;

 private:
  tap::DebugContext context_;
  bool begun_ = false;
  // Free ones are used again.
  std::vector<std::unique_ptr<tap::DebugWait>> waits_;
  std::vector<std::pair<const Worker*, std::unique_ptr<tap::DebugWorker>>> workers_;
};

}  // namespace heddle::engine
