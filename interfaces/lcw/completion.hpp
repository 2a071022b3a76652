// LCW's completion objects: a queue that any number of threads fill and poll, or a handler.
#pragma once

#include <lcw.hpp>

#include "lcw/bias.hpp"
#include "lcw/ring.hpp"

namespace heddle::for_lcw {

// The object that LCW's comp_t points to. There are two kinds, told apart without a virtual call.
class Completion {
 public:
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  // Null for a queue.
  [[nodiscard]] ::lcw::handler_t handler() const { return handler_; }
  static Completion* of(::lcw::comp_t comp) { return reinterpret_cast<Completion*>(comp); }
  [[nodiscard]] ::lcw::comp_t comp() { return reinterpret_cast<::lcw::comp_t>(this); }

 protected:
  explicit Completion(::lcw::handler_t function) : handler_(function) {}
  ~Completion() = default;

 private:
  ::lcw::handler_t handler_;
};

class Handler final : public Completion {
 public:
  explicit Handler(::lcw::handler_t function) : Completion(function) {}
};

// Unbounded. While only one thread polls it, that thread's own completions go through a separate
// buffer, and those of other threads are taken out without a read-modify-write. A locked
// instruction would wait until the stores that made a message visible, or took one, have reached
// the other core.
class CompletionQueue final : public Completion {
 public:
  CompletionQueue() : Completion(nullptr) {}

  void push(const ::lcw::request_t& request) {
    if (const Bias::Visit visit(&bias_); visit.inside()) {
      if (own_.push(request)) return;
    }
    shared_.push(request);
  }
  // False: there is none.
  [[nodiscard]] bool pop(::lcw::request_t* request) {
    if (const Bias::Visit visit(&bias_); visit.inside()) {
      return own_.pop(request) || shared_.pop_alone(request);
    }
    return pop_as_another(request);
  }
  static CompletionQueue* of(::lcw::comp_t comp) { return static_cast<CompletionQueue*>(Completion::of(comp)); }

 private:
  // For a thread that is not the owner: it becomes the owner, or from now on all threads share the
  // queue.
  bool pop_as_another(::lcw::request_t* request);

  Bias bias_;
  OwnBuffer own_;      // the owner's
  SharedRing shared_;  // any thread pushes; the owner pops, or any thread once there is no owner
};

}  // namespace heddle::for_lcw
