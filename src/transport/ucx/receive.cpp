// Messages on their way in. UCX's memory is valid only within its call, so what it brings is copied into the sender's ring.
#include <algorithm>
#include <cstring>
#include <new>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

struct Record {
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  std::uint64_t padding = 0;
};
static_assert(sizeof(Record) == kRecordHead);

}  // namespace

[[gnu::cold]] void Station::malformed(const char* what) {
  if (malformed_++ == 0) {
    home_.environment().log.line(base::Level::error, "worker %u ignores %s", index_, what);
  }
}

// Null: it is none.
Channel* Station::sender_of(const Head& head) {
  if (head.rank >= home_.size() || head.worker >= max_workers_) return nullptr;
  Channel* channel = slot(head.rank, head.worker);
  if (channel == nullptr) [[unlikely]] {
    if (head.pass != pass_of(head.rank, head.worker, home_.secret())) return nullptr;
    try {
      channel = new_channel(head.rank, head.worker);
    } catch (const std::bad_alloc&) {
      home_.environment().log.line(base::Level::error, "no memory to hear worker %u of rank %u", head.worker,
                                   head.rank);
      return nullptr;
    }
  }
  if (channel->pass != head.pass) return nullptr;
  if (!channel->heard) [[unlikely]] {
    channel->heard = true;
    if (channel->stage == Channel::Stage::unopened && !channel->owing) {  // it waits for our greeting
      channel->owing = true;
      owing_.push_back(channel);
    }
  }
  return channel;
}

// What the peer says of the stream towards it. False: it cannot be.
bool Station::told_by(Channel& channel, const Head& head) {
  const News news = news_of(head.consumed, channel.acked, channel.sent);
  if (news != News::fresh) [[unlikely]]
    return news == News::stale;
  if (head.arrived - head.consumed > channel.sent - head.consumed) [[unlikely]]
    return false;
  channel.acked = head.consumed;
  channel.delivered = later_of(channel.delivered, head.arrived);
  if (!channel.undelivered.empty()) delivered(channel);
  return true;
}

void Station::delivered(Channel& channel) {
  do {
    const bool there = channel.delivered - channel.undelivered.first->end < std::uint32_t{1} << 31;
    if (!there) return;
    end_message(channel, HEDDLE_DONE);
  } while (!channel.undelivered.empty());
}

void Station::end_message(Channel& channel, base::Status status) {
  Sending* sending = channel.undelivered.take();
  --undelivered_;
  emit(sending->token, status, Event::done);
  sending->next = free_sending_;
  free_sending_ = sending;
}

// Nothing is known of them any more.
[[gnu::cold]] void Station::end_messages(Channel& channel, base::Status status) {
  while (!channel.undelivered.empty()) end_message(channel, status);
}

ucs_status_t Station::on_credit(void* arg, const void*, std::size_t, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param) {
  Station& station = *static_cast<Station*>(arg);
  Head head;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || bytes != sizeof head) {
    station.malformed("a credit that is none");
    return UCS_OK;
  }
  std::memcpy(&head, data, sizeof head);
  Channel* channel = station.sender_of(head);
  if (channel == nullptr) {
    station.malformed("a credit of nobody in this job");
  } else if (!station.told_by(*channel, head)) {
    station.malformed("a credit for what was not sent");
    station.give_up(*channel);
  }
  return UCS_OK;
}

ucs_status_t Station::on_message(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Station& station = *static_cast<Station*>(arg);
  Head head;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 || bytes < sizeof head ||
      bytes - sizeof head > kMostMessage) [[unlikely]] {
    station.malformed("a message that is none");
    return UCS_OK;
  }
  std::memcpy(&head, data, sizeof head);
  Channel* channel = station.sender_of(head);
  if (channel == nullptr) [[unlikely]] {
    station.malformed("a message of nobody in this job");
  } else if (!station.told_by(*channel, head) ||
             !station.arrived(*channel, head, static_cast<const std::byte*>(data) + sizeof head,
                              static_cast<std::uint32_t>(bytes - sizeof head))) [[unlikely]] {
    station.malformed("a message out of its turn");
    station.give_up(*channel);
  }
  return UCS_OK;
}

ucs_status_t Station::on_bundle(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param) {
  Station& station = *static_cast<Station*>(arg);
  Head head;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 || bytes < sizeof head ||
      bytes > kMostBundle) [[unlikely]] {
    station.malformed("a bundle of messages that is none");
    return UCS_OK;
  }
  std::memcpy(&head, data, sizeof head);
  Channel* channel = station.sender_of(head);
  if (channel == nullptr) [[unlikely]] {
    station.malformed("messages of nobody in this job");
  } else if (!station.told_by(*channel, head) ||
             !station.arrived_together(*channel, head, static_cast<const std::byte*>(data) + sizeof head,
                                       static_cast<std::uint32_t>(bytes - sizeof head))) [[unlikely]] {
    station.malformed("messages out of their turn");
    station.give_up(*channel);
  }
  return UCS_OK;
}

bool Station::arrived_together(Channel& channel, const Head& head, const std::byte* data, std::uint32_t bytes) {
  Head one = head;
  Part part;
  for (std::uint32_t at = 0; at < bytes; at += part_bytes(part.bytes)) {
    if (!read_part(data + at, bytes - at, &part)) return false;
    one.immediate = part.immediate;
    if (!arrived(channel, one, data + at + sizeof part, part.bytes)) return false;
    one.position += cost_of(part.bytes);
  }
  return true;
}

// False: that message cannot come now.
bool Station::arrived(Channel& channel, const Head& head, const std::byte* data, std::uint32_t bytes) {
  const std::uint32_t cost = cost_of(bytes);
  if (head.position != channel.arrived || channel.arrived - channel.consumed + cost > window_) return false;
  if (channel.ring == nullptr && !open_ring(channel)) [[unlikely]]
    return false;
  channel.arrived += cost;
  if (!channel.telling) {
    channel.telling = true;
    if (telling_.empty()) tell_at_ = polls() + kTellPolls;
    telling_.push_back(&channel);
  }
  if (closed_) [[unlikely]] {
    channel.consumed += cost;
    owe(channel);
    return true;
  }
  const Record record{bytes, head.immediate, 0};
  std::byte* place = channel.ring.get() + channel.write_at;
  std::memcpy(place, &record, sizeof record);
  if (bytes == 8) {  // a call costs more than that
    std::memcpy(place + sizeof record, data, 8);
  } else if (bytes != 0) {
    std::memcpy(place + sizeof record, data, bytes);
  }
  channel.write_at += cost;
  if (channel.write_at >= window_) channel.write_at = 0;
  ++channel.records;
  if (!channel.queued) {
    channel.queued = true;
    ready_.push_back(&channel);
  }
  return true;
}

[[gnu::cold]] bool Station::open_ring(Channel& channel) {
  channel.ring.reset(new (std::nothrow) std::byte[std::size_t{window_} + cost_of(kMostMessage)]);
  if (channel.ring != nullptr) return true;
  home_.environment().log.line(base::Level::error, "no memory for messages of worker %u of rank %u", channel.worker,
                               channel.rank);
  return false;
}

// In turns, so that nobody who sends much keeps the others waiting.
std::size_t Station::hand_out(std::span<Completion> out) {
  std::size_t n = 0;
  std::size_t served = 0;
  const std::size_t channels = ready_.size();
  while (served < channels && n < out.size()) {
    Channel& channel = *ready_[served++];
    n += hand_out_of(channel, out.subspan(n));
    if (channel.records == 0) channel.queued = false;
  }
  // Those that were not served come first next time, then those with something left.
  std::size_t kept = 0;
  if (served == channels) {
    for (Channel* channel : ready_) {
      if (channel->queued) ready_[kept++] = channel;
    }
    ready_.resize(kept);
  } else {
    std::rotate(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(served), ready_.end());
    std::erase_if(ready_, [](const Channel* channel) { return !channel->queued; });
  }
  return n;
}

std::size_t Station::hand_out_of(Channel& channel, std::span<Completion> out) {
  std::size_t n = 0;
  while (channel.records != 0 && n < out.size()) {
    const std::byte* place = channel.ring.get() + channel.read_at;
    Record record;
    std::memcpy(&record, place, sizeof record);
    const std::uint32_t cost = cost_of(record.bytes);
    Completion& completion = out[n++];
    completion.event = Event::message;
    completion.status = HEDDLE_DONE;
    completion.token = 0;
    completion.data = place + sizeof record;
    completion.bytes = record.bytes;
    completion.immediate = record.immediate;
    completion.rank = channel.rank;
    completion.worker = channel.worker;
    channel.read_at += cost;
    if (channel.read_at >= window_) channel.read_at = 0;
    --channel.records;
    if (channel.lent == 0) lending_.push_back(&channel);
    channel.lent += cost;
  }
  return n;
}

void Station::release_lent() {
  for (Channel* channel : lending_) {
    channel->consumed += channel->lent;
    channel->lent = 0;
    owe(*channel);
  }
  lending_.clear();
  if (!owing_.empty()) send_credits();
}

}  // namespace heddle::transport::ucx
