// Connections that are no more: what is under way there ends, and UCX's endpoints are closed when that is safe.
#include <algorithm>
#include <utility>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// How long UCX may take to find out by itself that a peer has died.
constexpr std::uint64_t kDyingNs = 100'000'000;

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
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
      closing_.emplace_back(request, &channel);
    } else {
      abandon(channel);
    }
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
  std::erase_if(closing_, [this](const auto& closing) {
    if (call_.request_check_status(closing.first) == UCS_INPROGRESS) return false;
    call_.request_free(closing.first);
    abandon(*closing.second);
    return true;
  });
}

}  // namespace heddle::transport::ucx
