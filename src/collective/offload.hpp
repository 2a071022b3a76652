// Runs one rank's part of an operation on the network's interface: no thread is needed until the
// run ends, and advance() only looks. Derived classes choose the interface's mechanism: session
// queues in session_offload.hpp, barrier gates in gate_offload.hpp.
#pragma once

#include "collective/runner.hpp"

namespace heddle::collective {

class Offload : public Runner {
 public:
  void start(std::uint64_t bytes) final;
  using Runner::start;
  bool advance() final;
  // Parts that have not ended stay with the interface, and so does memory that members may still
  // put to.
  [[nodiscard]] Memory retire(const Past& past) final;

 protected:
  Offload() : Runner(Needs::nobody) {}

 private:
  // Called with lock_ held. begin_run(): may call fail(). look(): DONE, AGAIN, or the run's error.
  virtual void begin_run() = 0;
  virtual base::Status look() = 0;
  // Everything that the interface was given stays with it: members may still reach it.
  virtual void leave() = 0;
};

}  // namespace heddle::collective
