// A context as Python sees it. It owns everything that was opened on it. When it leaves, its
// workers and regions are closed too, and Python objects that still refer to them raise
// ClosedError.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls.hpp"
#include "heddle/heddle.h"
#include "memory.hpp"
#include "request.hpp"

namespace heddle::python {

// An open region, with everything that it needs until it is released, whether or not Python has a
// Region. A region that Python has forgotten stays open, since peers may be using it.
struct OpenRegion {
  heddle_region handle{};
  Memory memory;      // of a registered region
  ZeroedPages pages;  // of an array of Context.zeros, which may outlive the region
  // A peer may know it. If no peer does, a region of pages of its own is released with its array.
  std::atomic<bool> named{false};
  // Memory views that Python has of it. Negative: it is released; there will be no more.
  std::atomic<int> exports{0};
};

// Objects that the operations of a worker need until the context has left.
struct Home {
  Retired retired;
  Users users;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  explicit Context(const heddle_context_options& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // Does not leave: that waits for other ranks. A context that was forgotten ends with the process.
  ~Context();

  [[nodiscard]] heddle_context handle() const { return handle_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool open() const { return open_.load(std::memory_order_acquire); }
  // Calls on it that are not on a worker.
  [[nodiscard]] Users& users() { return users_; }
  // BufferError: arrays lie in memory that would go. Threads that wait on it get ClosedError.
  // `self`: what Python has of it.
  void leave(nb::handle self);

  // Objects that live until the context has left.
  Home& add_home();
  // Retires completed operations.
  void retire();
  void keep(nb::object handler);
  // Memory of operations that nobody waits for any more; also while the context leaves.
  void keep(std::shared_ptr<void> memory);
  std::shared_ptr<OpenRegion> add_region();
  void remove_region(const OpenRegion* region);

 private:
  void reject_exports();
  [[nodiscard]] bool exported();
  [[nodiscard]] bool try_close_regions();
  void reopen();
  [[nodiscard]] heddle_status leave_when_idle(std::string* text);
  [[nodiscard]] std::vector<Home*> homes();
  void release_all();

  heddle_context handle_{};
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::atomic<bool> open_{false};
  Users users_;
  std::mutex mutex_;  // guards what follows; no Python code runs under it
  std::vector<std::unique_ptr<Home>> homes_;
  std::vector<nb::object> handlers_;
  std::vector<std::shared_ptr<void>> memory_;
  bool released_ = false;  // it has left: nothing is kept any more
  std::vector<std::shared_ptr<OpenRegion>> regions_;
};

void bind_context(nb::module_& module);

}  // namespace heddle::python
