// What a room above the engine adds to every worker: messages of its own between workers, for which programs have no handler
// number, and chores that progress moves on. The engine knows no more about it. One for each worker, which owns it.
//
// All of it is for the thread inside the worker, but the destructor: then nobody uses the worker any more.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "heddle/heddle.h"

namespace heddle::engine {

class Worker;

class WorkerExtension {
 public:
  WorkerExtension() = default;
  WorkerExtension(const WorkerExtension&) = delete;
  WorkerExtension& operator=(const WorkerExtension&) = delete;
  virtual ~WorkerExtension() = default;

  // What Worker::try_notice() of a peer's worker has sent: header, padded to 8 bytes, and payload. False: it is not well formed.
  virtual bool arrived(heddle_peer source, std::span<const std::byte> packet) = 0;
  // After Worker::want_chores(). *more: call again. True: something has moved.
  virtual bool advance(bool* more) = 0;
  // Ranks have failed.
  virtual void note_failures() = 0;
  // The worker is about to be closed, and what it has under way to be cancelled. May be called again.
  virtual void end() = 0;
};

// May throw std::bad_alloc.
using OpenExtension = std::unique_ptr<WorkerExtension> (*)(Worker& worker);

}  // namespace heddle::engine
