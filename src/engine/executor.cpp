#include "engine/executor.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cstdio>

#include "base/wait.hpp"
#include "engine/gate.hpp"

namespace heddle::engine {
namespace {

// Rounds without work before the thread sleeps: a few microseconds, about what waking it costs a producer.
constexpr int kIdleRounds = 200;
// Rounds without events before it gives its core to others, for the answer may have to be computed there.
constexpr int kWaitRounds = 1000;

// Signals are the application's threads' business.
std::thread start_without_signals(void (*run)(void*), void* arg) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(run, arg);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace

Executor::Executor(Gate& gate, std::uint32_t number) : gate_(gate) {
  thread_ = start_without_signals([](void* self) { static_cast<Executor*>(self)->run(); }, this);
  char name[16];
  std::snprintf(name, sizeof name, "heddle-exec-%u", number % 1000);
  pthread_setname_np(thread_.native_handle(), name);
}

Executor::~Executor() {
  stop_.store(true, std::memory_order_relaxed);
  sleeper_.wake();
  thread_.join();
}

void Executor::run() {
  int fruitless = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const Gate::Round round = gate_.execute_round();
    if (round == Gate::Round::busy) {
      fruitless = 0;
      continue;
    }
    ++fruitless;
    if (round == Gate::Round::idle && fruitless > kIdleRounds) {
      fruitless = 0;
      if (!gate_.prepare_sleep()) continue;
      static_cast<void>(sleeper_.sleep(-1));
      gate_.end_sleep();
    } else if (fruitless > kWaitRounds) {
      sched_yield();
    } else {
      base::cpu_relax();
    }
  }
}

}  // namespace heddle::engine
