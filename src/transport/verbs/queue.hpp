// A completion queue that can be slept on.
#pragma once

#include <cstdint>
#include <span>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

// Reports, by one descriptor, that completions have come into any of the queues that are open on
// it.
class Channel {
 public:
  Channel() = default;
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  base::Status open(const Adapter& adapter);
  void close();
  [[nodiscard]] bool is_open() const { return channel_ != nullptr; }
  [[nodiscard]] ibv_comp_channel* get() const { return channel_; }
  [[nodiscard]] int descriptor() const { return channel_->fd; }
  // Forgets what it has reported.
  void drain();

 private:
  const Adapter* adapter_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
};

class CompletionQueue {
 public:
  CompletionQueue() = default;
  ~CompletionQueue() { close(); }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // `owner`: that events name; null: the device.
  base::Status open(const Adapter& adapter, const Channel& channel, std::uint32_t entries, void* owner);
  void close();
  [[nodiscard]] ibv_cq* get() const { return queue_; }
  // How many were written.
  [[nodiscard]] std::size_t poll(std::span<ibv_wc> out) const {
    const int count = ibv_poll_cq(queue_, static_cast<int>(out.size()), out.data());
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  // The channel reports the next completion. The caller polls once more afterwards.
  void arm() const { ibv_req_notify_cq(queue_, 0); }

 private:
  const Adapter* adapter_ = nullptr;
  ibv_cq* queue_ = nullptr;
};

}  // namespace heddle::transport::verbs
