// Runs one rank's part in an operation by the network's interface: until the end nobody is needed,
// advance() only looks. What of the interface does it, a derived class says: session queues in
// session_offload.hpp, barrier gates in gate_offload.hpp.
#pragma once

#include "collective/runner.hpp"

namespace heddle::collective {

class Offload : public Runner {
 public:
  void start(std::uint64_t bytes) final;
  using Runner::start;
  bool advance() final;
  // What has not ended stays with the interface, and so does what members may put to later.
  [[nodiscard]] Memory retire(const Past& past) final;

 protected:
  Offload() : Runner(Needs::nobody) {}

 private:
  // Within lock_. begin_run(): may fail(). look(): DONE, AGAIN, or how the run has failed.
  virtual void begin_run() = 0;
  virtual base::Status look() = 0;
  // What the interface has been given stays with it: members may still reach it.
  virtual void leave() = 0;
};

}  // namespace heddle::collective
