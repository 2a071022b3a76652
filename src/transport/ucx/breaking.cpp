// Connections that are no more: what is under way there ends, and UCX's endpoints are closed when that is safe.
#include <algorithm>
#include <utility>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// How long UCX may take to find out by itself that a peer has died.
constexpr std::uint64_t kDyingNs = 100'000'000;
// How long UCX may take to end what went through an endpoint that is closed: over TCP one round of progress, else until a device has flushed.
// What is left then it has forgotten.
constexpr std::uint64_t kForgottenNs = 50'000'000;
constexpr std::uint32_t kForgottenRounds = 8;

}  // namespace

// Nothing goes that way any more: what is under way ends with PEER_FAILED. `sure`: UCX itself gave the connection up, or it was used.
// Else UCX may still be answering the peer's greeting, and 1.13 aborts when that is cut off: the endpoint stays, with what it has.
void Station::break_off(Channel& channel, base::Status status, bool sure) {
  if (channel.stage == Channel::Stage::broken && (channel.endpoint == nullptr || !sure)) return;
  channel.stage = Channel::Stage::broken;
  channel.status = status;
  if (!closed_) home_.lose(channel.rank);
  drop_waiting(channel);
  end_messages(channel, status);
  if (channel.endpoint != nullptr && home_.recovers() && !sure && channel.used && !closed_) {
    // What the dead has sent is read before: UCX 1.13 aborts on an acknowledgement that comes after its connection was cut (tcp_ep.c:939).
    channel.dies_at = now_ns() + kDyingNs;
    dying_.push_back(&channel);
  } else if (channel.endpoint != nullptr && home_.recovers() && (sure || channel.used)) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = call_.ep_close_nbx(std::exchange(channel.endpoint, nullptr), &params);
    if (UCS_PTR_IS_ERR(request)) request = nullptr;
    // Closed, it still has all: a later round of progress takes the connection down and ends what went through it. Until then a reply may be
    // written to the caller's memory, so nothing is given back before.
    if (request != nullptr || holds_some(channel)) closing_.push_back({&channel, request, now_ns() + kForgottenNs, 0});
  } else if (channel.endpoint != nullptr) {
    orphan(channel);
  }
  if (!channel.flush_flies) flush_ended(channel, status);
}

// UCX keeps what it has; nobody waits for it any more.
[[gnu::cold]] void Station::orphan(Channel& channel) {
  for (std::uint32_t i = 0; i < operation_count_; ++i) {
    Operation& operation = operations_[i];
    if (!operation.active || operation.channel != &channel || operation.orphan) continue;
    if (operation.local_done && !channel.flush_flies) continue;  // flush_ended() ends it
    operation.orphan = true;
    operation.owes_source = false;
    emit(operation.token, HEDDLE_ERR_PEER_FAILED, Event::done);
    --under_way_;
    ++orphans_;
  }
}

// UCX has something of it that has not ended.
[[gnu::cold]] bool Station::holds_some(const Channel& channel) const {
  if (channel.flush_flies) return true;
  return std::any_of(operations_.get(), operations_.get() + operation_count_, [&channel](const Operation& operation) {
    return operation.active && operation.channel == &channel && operation.request != nullptr;
  });
}

// Its endpoint is no more, and UCX has ended what went through it; but UCX 1.13 forgets a fetching atomic that waited for its turn, as while the
// connection was being made (ucp_request_send_state_ff() counts on a completion that has not begun). A request that is released
// tells nothing afterwards.
[[gnu::cold]] void Station::abandon(Channel& channel) {
  if (channel.flush_flies) {
    call_.request_free(std::exchange(channel.flush_request, nullptr));
    channel.flush_flies = false;
    flush_ended(channel, HEDDLE_ERR_PEER_FAILED);
  }
  for (std::uint32_t i = 0; i < operation_count_; ++i) {
    Operation& operation = operations_[i];
    if (!operation.active || operation.channel != &channel || operation.request == nullptr) continue;
    call_.request_free(std::exchange(operation.request, nullptr));
    operation.change.active = false;
    operation.local_done = true;
    operation.owes_source = false;
    operation.status = HEDDLE_ERR_PEER_FAILED;
    if (operation.flushed) finish(&operation);
  }
}

void Station::close_broken() {
  while (!to_break_.empty()) {
    Channel& channel = *to_break_.back();
    to_break_.pop_back();
    break_off(channel, HEDDLE_ERR_PEER_FAILED, !channel.given_up);
  }
  std::erase_if(dying_, [this](Channel* channel) {
    if (channel->endpoint != nullptr && now_ns() < channel->dies_at) return false;
    if (channel->endpoint != nullptr) break_off(*channel, channel->status, true);
    return true;
  });
  if (!closing_.empty()) end_closing();
}

// Not from within UCX's progress.
[[gnu::cold]] void Station::end_closing() {
  if (call_.worker_progress(worker_) != 0 && armed()) armed_.store(false, std::memory_order_relaxed);
  std::erase_if(closing_, [this](Closing& closing) {
    if (closing.request != nullptr) {
      if (call_.request_check_status(closing.request) == UCS_INPROGRESS) return false;
      call_.request_free(std::exchange(closing.request, nullptr));
    }
    if (holds_some(*closing.channel)) {
      if (++closing.rounds < kForgottenRounds || now_ns() < closing.until) return false;
      abandon(*closing.channel);
    }
    return true;
  });
}

}  // namespace heddle::transport::ucx
