#include "gil.hpp"

#include <pthread.h>
#include <unistd.h>

#include <thread>

namespace heddle::python {

std::atomic<std::uint32_t> Interpreter::taking_{0};
std::atomic<bool> Interpreter::ends_{false};

namespace {

std::thread::id g_ending;  // the thread that ends the interpreter; written before ends_

}  // namespace

void Interpreter::begin_taking() {
  taking_.fetch_add(1, std::memory_order_seq_cst);
  if (!ends_.load(std::memory_order_seq_cst) || g_ending == std::this_thread::get_id()) [[likely]]
    return;
  taking_.fetch_sub(1, std::memory_order_release);
  for (;;) ::pause();  // the process is about to end
}

void Interpreter::begin_end() {
  g_ending = std::this_thread::get_id();
  ends_.store(true, std::memory_order_seq_cst);
  PyThreadState* const state = PyEval_SaveThread();
  while (taking_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

void Interpreter::begin_child() {
  taking_.store(0, std::memory_order_relaxed);
  ends_.store(false, std::memory_order_relaxed);
}

void bind_interpreter(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, &Interpreter::begin_child);
  module.def("_begin_end", &Interpreter::begin_end);
  nb::module_::import_("atexit").attr("register")(module.attr("_begin_end"));
}

}  // namespace heddle::python
