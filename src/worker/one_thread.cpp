#include "worker/one_thread.hpp"

#include <optional>
#include <utility>

namespace heddle::worker {
namespace {

using transport::LocalMemory;
using transport::RemoteMemory;
using transport::TransportWorker;

// Runs function() on the thread and returns its result. An error message belongs to the thread that
// met the error, so it is copied to the caller.
template <class Function>
auto result_of(Executor& thread, Function&& function) {
  if (thread.is_this_thread()) return function();
  std::optional<decltype(function())> result;
  std::string words;
  thread.call([&] {
    result.emplace(function());
    if (!result->ok()) words = base::last_message();
  });
  if (!result->ok()) base::fail(result->status(), "%s", words.c_str());
  return *std::move(result);
}

class OneThreadWorker final : public transport::ForwardingWorker {
 public:
  OneThreadWorker(Executor& thread, std::unique_ptr<TransportWorker> inner)
      : ForwardingWorker(std::move(inner)), thread_(thread) {}
  ~OneThreadWorker() override {
    thread_.call([this] { inner_.reset(); });
  }
  OneThreadWorker(const OneThreadWorker&) = delete;
  OneThreadWorker& operator=(const OneThreadWorker&) = delete;

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override {
    return here() ? inner_->post(batch) : 0;
  }
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override {
    return here() ? inner_->poll(completions) : 0;
  }
  void peer_failed(std::uint32_t rank) override {
    thread_.call([this, rank] { inner_->peer_failed(rank); });
  }
  [[nodiscard]] bool closed(Target target) override { return here() && inner_->closed(target); }
  [[nodiscard]] bool ended(Target target) override { return here() && inner_->ended(target); }
  [[nodiscard]] bool arm() override { return here() && inner_->arm(); }
  [[nodiscard]] bool has_arrivals() override { return !here() || inner_->has_arrivals(); }
  [[nodiscard]] bool has_untaken() override { return here() && inner_->has_untaken(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override {
    return here() ? inner_->unopened(found) : 0;
  }

 private:
  [[nodiscard]] bool here() const { return thread_.is_this_thread(); }

  Executor& thread_;
};

}  // namespace

OneThread::Opened OneThread::open(Executor& thread, const std::function<Opened()>& open) {
  auto inner = result_of(thread, open);
  if (!inner) return inner.status();
  return std::unique_ptr<transport::Transport>(std::make_unique<OneThread>(thread, std::move(*inner)));
}

OneThread::~OneThread() {
  thread_.call([this] { inner_.reset(); });
}

base::Result<std::unique_ptr<TransportWorker>> OneThread::open_worker(std::uint32_t index) {
  auto inner = result_of(thread_, [&] { return inner_->open_worker(index); });
  if (!inner) return inner.status();
  return std::unique_ptr<TransportWorker>(std::make_unique<OneThreadWorker>(thread_, std::move(*inner)));
}

base::Result<LocalMemory> OneThread::allocate(std::uint64_t bytes) {
  return result_of(thread_, [&] { return inner_->allocate(bytes); });
}

void OneThread::free(const LocalMemory& memory) {
  thread_.call([&] { inner_->free(memory); });
}

base::Result<LocalMemory> OneThread::register_memory(void* address, std::uint64_t bytes) {
  return result_of(thread_, [&] { return inner_->register_memory(address, bytes); });
}

base::Result<LocalMemory> OneThread::register_for(std::uint32_t rank, void* address, std::uint64_t bytes) {
  return result_of(thread_, [&] { return inner_->register_for(rank, address, bytes); });
}

void OneThread::deregister(const LocalMemory& memory) {
  thread_.call([&] { inner_->deregister(memory); });
}

base::Result<RemoteMemory> OneThread::try_import(std::uint32_t rank, const transport::MemoryKey& key) {
  return result_of(thread_, [&] { return inner_->try_import(rank, key); });
}

}  // namespace heddle::worker
