#include "transport/network/undelivered.hpp"

namespace heddle::transport::network {

[[gnu::noinline]] void Undelivered::remember_anew(StreamPeer& peer, Token token, std::uint32_t cost) {
  Sending* sending = sendings_.take();
  sending->token = token;
  sending->end = peer.next.position;
  sending->cost = cost;
  sending->count = 1;
  peer.undelivered.append(sending);
}

bool Undelivered::learn(StreamPeer& peer, std::uint32_t consumed, std::uint32_t arrived) {
  const News news = news_of(consumed, peer.acked, peer.next.position);
  if (news != News::fresh) [[unlikely]]
    return news == News::stale;
  if (arrived - consumed > peer.next.position - consumed) [[unlikely]]
    return false;
  peer.acked = consumed;
  peer.delivered = later_of(peer.delivered, arrived);
  end(peer, peer.delivered, HEDDLE_DONE);
  return true;
}

// The messages up to there in the stream are done.
void Undelivered::end(StreamPeer& peer, std::uint32_t delivered, base::Status status) {
  while (!peer.undelivered.empty()) {
    Sending& first = *peer.undelivered.first;
    const std::uint32_t left = unarrived_of(first.count, first.cost, first.end, delivered);
    const std::uint32_t done = first.count - left;
    if (done == 0) return;
    completions_.done(first.token, status, done);
    room_.give(done);
    first.end += done * first.cost;
    first.count = left;
    if (left != 0) return;
    sendings_.give_back(peer.undelivered.take());
  }
}

}  // namespace heddle::transport::network
