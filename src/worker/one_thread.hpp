// A transport whose library takes calls of one thread only (Capabilities::one_thread). That thread
// opens, registers and destroys everything; the thread that asks for it waits. If another thread
// posts to a worker or polls it, nothing is taken and nothing is found.
//
// No other thread posts or polls: all workers of such a context are in offload mode,
// and Gate::may_advance() keeps the others out. This file serves the calls that other threads make
// of the transport, and is a second safeguard against their posts and polls.
#pragma once

#include <functional>
#include <memory>

#include "transport/common/forwarding.hpp"
#include "worker/executor.hpp"

namespace heddle::worker {

class OneThread final : public transport::ForwardingTransport {
 public:
  using Opened = base::Result<std::unique_ptr<transport::Transport>>;

  // Wraps the transport that open() opens on the thread.
  static Opened open(Executor& thread, const std::function<Opened()>& open);
  OneThread(Executor& thread, std::unique_ptr<transport::Transport> inner)
      : ForwardingTransport(std::move(inner)), thread_(thread) {}
  ~OneThread() override;
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  [[nodiscard]] std::string describe() const override { return inner_->describe() + ", one thread makes all calls"; }
  [[nodiscard]] base::Result<std::unique_ptr<transport::TransportWorker>> open_worker(std::uint32_t index) override;
  [[nodiscard]] base::Result<transport::LocalMemory> allocate(std::uint64_t bytes) override;
  void free(const transport::LocalMemory& memory) override;
  [[nodiscard]] base::Result<transport::LocalMemory> register_memory(void* address, std::uint64_t bytes) override;
  void deregister(const transport::LocalMemory& memory) override;
  [[nodiscard]] base::Result<transport::LocalMemory> register_for(std::uint32_t rank, void* address,
                                                                  std::uint64_t bytes) override;
  [[nodiscard]] base::Result<transport::RemoteMemory> try_import(std::uint32_t rank,
                                                                 const transport::MemoryKey& key) override;
  // release() does not run on the thread: it is called with locks held that the thread may wait
  // for, and it calls no library. Session queues and gates would need the thread, so there are
  // none.
  [[nodiscard]] transport::SessionQueues* sessions() override { return nullptr; }
  [[nodiscard]] transport::BarrierGates* gates() override { return nullptr; }

 private:
  Executor& thread_;
};

}  // namespace heddle::worker
