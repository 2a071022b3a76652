#include "transport/verbs/queue.hpp"

#include <fcntl.h>

namespace heddle::transport::verbs {

base::Status Channel::open(const Adapter& adapter) {
  adapter_ = &adapter;
  channel_ = adapter.call().create_comp_channel(adapter.context());
  if (channel_ == nullptr || ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no completion channel", adapter.name().c_str());
  return HEDDLE_DONE;
}

void Channel::close() {
  if (channel_ != nullptr) adapter_->call().destroy_comp_channel(channel_);
  channel_ = nullptr;
}

void Channel::drain() {
  ibv_cq* queue = nullptr;
  void* nothing = nullptr;
  while (adapter_->call().get_cq_event(channel_, &queue, &nothing) == 0) adapter_->call().ack_cq_events(queue, 1);
}

base::Status CompletionQueue::open(const Adapter& adapter, const Channel& channel, std::uint32_t entries, void* owner) {
  adapter_ = &adapter;
  queue_ = adapter.call().create_cq(adapter.context(), static_cast<int>(entries), owner, channel.get(), 0);
  if (queue_ != nullptr) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no completion queue of %u entries", adapter.name().c_str(),
                          entries);
}

void CompletionQueue::close() {
  if (queue_ != nullptr) adapter_->call().destroy_cq(queue_);
  queue_ = nullptr;
}

}  // namespace heddle::transport::verbs
