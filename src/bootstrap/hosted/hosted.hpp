// A job that a foreign launcher has started: its interface, its thread, and joining.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/config.hpp"
#include "base/error.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::hosted {

// The longest value that is ever put. PMI-1 promises 1024 bytes less the terminator, PMIx more.
inline constexpr std::size_t kMaxValueBytes = 1000;

// The part of a foreign launcher (PMI, PMIx) that joining needs: the rank of this process, and one
// value from rank 0 for all.
//
// Such libraries and protocols need not be thread-safe: the owner makes all calls on one thread,
// see Service.
class ForeignLauncher {
 public:
  ForeignLauncher() = default;
  ForeignLauncher(const ForeignLauncher&) = delete;
  ForeignLauncher& operator=(const ForeignLauncher&) = delete;
  virtual ~ForeignLauncher() = default;

  [[nodiscard]] virtual const char* name() const = 0;  // of the bootstrap
  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const = 0;
  // The launcher says that all ranks are on one host. False: they are not, or it does not say.
  [[nodiscard]] virtual bool one_host() = 0;

  // Collective, once: gives rank 0's `value` (letters, digits and "-.:,"; the others' is ignored)
  // to all ranks. Waits for all ranks.
  virtual base::Result<std::string> share(const std::string& value) = 0;
  // Ends the membership in good order; nothing else is called afterwards.
  virtual void finish() = 0;
  // Asks the launcher to end the job; may not return.
  virtual void abort(int code, const char* message) = 0;
};

// One thread that makes all calls of a library which need not be thread-safe: a queue of commands,
// and a result for each.
//
// Any thread may call; commands are run in the order of their calls. For set-up and the end of a
// job, not for hot paths.
class Service {
 public:
  using Work = std::function<base::Status()>;

  // SYSTEM: no thread can be started.
  static base::Result<std::unique_ptr<Service>> start();
  // Runs what has been queued, then ends the thread. In a forked child, where the thread does not
  // exist, does nothing.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Runs `work` on the thread and waits for it. Its status is returned, and its message is the
  // caller's last_message(). STATE: in a forked child; the work is not done.
  base::Status call(Work work);

 private:
  struct Command {
    Work work;
    bool done = false;
    base::Status status = HEDDLE_DONE;
    std::string message;
  };

  // Destroyed only where the thread is: in a forked child the destructor would wait for the thread
  // that waits in the parent.
  union Condition {
    Condition() : of() {}
    ~Condition() {}
    std::condition_variable of;
  };

  Service();
  void serve();

  const pid_t pid_;
  std::mutex mutex_;  // guards what follows
  Condition changed_;
  std::deque<std::shared_ptr<Command>> commands_;
  bool ending_ = false;
  std::thread thread_;
};

// A job that a foreign launcher has started. Rank 0 hosts the broker that `heddle run` would have;
// the launcher only gives the others rank 0's contact, and ends the job if a rank aborts it. See
// docs/decisions/0031-foreign-launchers.md.

// Opens the launcher; called on the thread that makes all its later calls too.
using OpenLauncher = std::function<base::Result<std::unique_ptr<ForeignLauncher>>()>;

// Joins; blocks until all ranks have. If rank 0 dies, every rank counts all others as failed.
// Errors: those of the launcher; BOOTSTRAP (rank 0 cannot be reached, or rejects), VERSION,
// PEER_FAILED (a rank died while the job met), SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open(const OpenLauncher& open_launcher, const base::Environment& environment);

}  // namespace heddle::bootstrap::hosted
