// A transport whose library takes calls of one thread only (Capabilities::one_thread): what is opened, registered and destroyed is
// that by the thread, whoever asks and waits for it; a worker that another thread posts to or polls takes and has nothing now.
//
// The engine does not post or poll by others: all workers of such a context are in offload mode, and Gate::may_advance() keeps the
// others out. What stands here is what the other threads have to do with the transport, and the second lock on the door.
#pragma once

#include <functional>
#include <memory>

#include "engine/executor.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

class OneThread final : public transport::Transport {
 public:
  using Opened = base::Result<std::unique_ptr<transport::Transport>>;

  // What open() opens, on this thread.
  static Opened open(ExecutorLoop& thread, const std::function<Opened()>& open);
  OneThread(ExecutorLoop& thread, std::unique_ptr<transport::Transport> inner)
      : thread_(thread), inner_(std::move(inner)) {}
  ~OneThread() override;
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  [[nodiscard]] const transport::Capabilities& capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::string describe() const override { return inner_->describe() + ", one thread makes all calls"; }
  [[nodiscard]] const char* way_to(std::uint32_t rank) const override { return inner_->way_to(rank); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override { return inner_->direct_to(rank); }
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override { return inner_->lost(rank); }
  [[nodiscard]] bool given_up(std::uint32_t rank) const override { return inner_->given_up(rank); }
  [[nodiscard]] base::Result<std::unique_ptr<transport::TransportWorker>> open_worker(std::uint32_t index) override;
  [[nodiscard]] base::Result<transport::LocalMemory> allocate(std::uint64_t bytes) override;
  void free(const transport::LocalMemory& memory) override;
  [[nodiscard]] base::Result<transport::LocalMemory> enroll(void* address, std::uint64_t bytes) override;
  void withdraw(const transport::LocalMemory& memory) override;
  [[nodiscard]] base::Result<transport::LocalMemory> enroll_for(std::uint32_t rank, void* address,
                                                                std::uint64_t bytes) override;
  [[nodiscard]] transport::MemoryKey key_for(std::uint32_t rank, const transport::WideKey& key) const override {
    return inner_->key_for(rank, key);
  }
  [[nodiscard]] base::Result<transport::RemoteMemory> try_import(std::uint32_t rank,
                                                                 const transport::MemoryKey& key) override;
  // Called with locks held that the thread may wait for; it calls no library.
  void release(const transport::RemoteMemory& memory) override { inner_->release(memory); }
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() override { return inner_->common_words(); }
  [[nodiscard]] std::uint32_t bell() override { return inner_->bell(); }
  void settle() override { inner_->settle(); }
  void wait(std::uint32_t seen, std::int64_t timeout_ns) override { inner_->wait(seen, timeout_ns); }
  void ring() override { inner_->ring(); }

 private:
  ExecutorLoop& thread_;
  std::unique_ptr<transport::Transport> inner_;
};

}  // namespace heddle::engine
