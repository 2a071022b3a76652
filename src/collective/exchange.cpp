#include "collective/exchange.hpp"

#include <algorithm>
#include <utility>

namespace heddle::collective {
namespace {

// Equal blocks, one after the other.
Exchange uniform(const Request& request, Rank rank) {
  Exchange made;
  const bool spread = request.operation == Operation::alltoallv || request.operation == Operation::scatterv;
  const bool one_gives = request.operation == Operation::scatterv;
  const bool one_takes = request.operation == Operation::gatherv;
  for (Rank peer = 0; peer < request.ranks; ++peer) {
    if ((!one_gives || rank == request.root) && (!one_takes || peer == request.root))
      made.given.push_back({peer, request.bytes, spread ? peer * request.bytes : 0});
    if ((!one_gives || peer == request.root) && (!one_takes || rank == request.root))
      made.taken.push_back({peer, request.bytes, one_gives ? 0 : peer * request.bytes});
  }
  lay_out(rank, &made);
  return made;
}

// A ring: one block to the next rank and one to the previous, which may be the same rank, or this
// one.
Exchange ring(const Request& request, Rank rank, bool kept) {
  const Rank next = (rank + 1) % request.ranks;
  const Rank last = (rank + request.ranks - 1) % request.ranks;
  const std::uint64_t bytes = request.bytes;
  Exchange made;
  made.kept = kept;
  made.given = {{next, bytes, 0}, {last, bytes, bytes}};
  made.taken = {{last, bytes, 0}, {next, bytes, bytes}};
  lay_out(rank, &made);
  return made;
}

// Fills in the values that the peers would tell, without making their lists, which may be very
// many.
void acquaint_uniform(const Request& request, Rank rank, bool kept, Exchange* made) {
  made->kept = kept;
  for (Message& message : made->given) {
    message.kept = kept && message.peer != rank;
    // A rank's blocks for itself go to receive, not to scratch.
    const Rank before = message.kept && message.peer < rank ? rank - 1 : rank;
    message.there = request.operation == Operation::scatterv ? 0 : before * request.bytes;
  }
  for (Message& message : made->taken) {
    // The slots of the peer: all ranks except itself, or only the root.
    message.slot = request.operation == Operation::gatherv ? 0 : rank - (message.peer < rank ? 1 : 0);
  }
}

// Sorts by peer; blocks of one peer stay in the order in which they are listed.
void put_in_order(std::vector<Message>& messages) {
  for (std::uint32_t i = 0; i < messages.size(); ++i) messages[i].slot = i;
  std::ranges::sort(messages, {}, [](const Message& message) { return std::pair(message.peer, message.slot); });
  for (Message& message : messages) message.slot = 0;
}

template <class Messages>
auto range_of(Messages& messages, Rank peer) {
  const auto [first, last] = std::ranges::equal_range(messages, peer, {}, &Message::peer);
  return std::span(first, last);
}

// Records where the k-th block that `from` gives to `to` is put.
void introduce(const Exchange& to, std::span<Message> given, std::span<const Message> taken, bool self) {
  const std::size_t count = std::min(given.size(), taken.size());
  for (std::size_t k = 0; k < count; ++k) {
    given[k].kept = to.kept && !self;
    given[k].there = given[k].kept ? taken[k].there : taken[k].here;
  }
}

Exchange ring_among_others(const Request& request, Rank rank, bool kept) {
  Exchange made = ring(request, rank, kept);
  for (const Rank peer : {(rank + 1) % request.ranks, (rank + request.ranks - 1) % request.ranks}) {
    const Exchange theirs = ring(request, peer, kept);
    introduce(theirs, of_peer(made.given, peer), of_peer(theirs.taken, rank), peer == rank);
    for (Message& message : of_peer(made.taken, peer)) message.slot = of_peer(theirs.given, rank).front().slot;
  }
  return made;
}

}  // namespace

Exchange exchange_of(const Request& request, Rank rank, bool kept) {
  if (!request.exchanges.empty()) return request.exchanges.size() == 1 ? request.exchanges[0] : request.exchanges[rank];
  if (request.operation == Operation::neighbor_alltoallv) return ring_among_others(request, rank, kept);
  Exchange made = uniform(request, rank);
  acquaint_uniform(request, rank, kept, &made);
  return made;
}

std::uint64_t extent(std::span<const Message> messages) {
  std::uint64_t end = 0;
  for (const Message& message : messages)
    if (message.bytes > 0) end = std::max(end, message.here + message.bytes);
  return end;
}

void lay_out(Rank rank, Exchange* exchange) {
  put_in_order(exchange->given);
  put_in_order(exchange->taken);
  std::uint32_t slots = 0;
  Rank last = rank;
  for (Message& message : exchange->given) {
    if (message.peer == rank || message.bytes == 0) continue;
    if (message.peer != last) ++slots;
    last = message.peer;
    message.slot = slots - 1;
  }
  std::uint64_t at = 0;
  for (Message& message : exchange->taken) {
    if (message.peer == rank) continue;
    message.there = at;
    at += message.bytes;
  }
  // A rank's blocks for itself go directly from list to list.
  introduce(*exchange, of_peer(exchange->given, rank), of_peer(exchange->taken, rank), true);
}

std::span<Message> of_peer(std::vector<Message>& messages, Rank peer) {
  return range_of(messages, peer);
}

std::span<const Message> of_peer(const std::vector<Message>& messages, Rank peer) {
  return range_of(messages, peer);
}

std::uint64_t kept_bytes(Rank rank, const Exchange& exchange) {
  std::uint64_t bytes = 0;
  for (const Message& message : exchange.taken)
    if (exchange.kept && message.peer != rank) bytes += message.bytes;
  return bytes;
}

void acquaint(std::span<Exchange> all) {
  for (Rank from = 0; from < all.size(); ++from) {
    for (Rank to = 0; to < all.size(); ++to) {
      const std::span<Message> given = of_peer(all[from].given, to);
      const std::span<Message> taken = of_peer(all[to].taken, from);
      introduce(all[to], given, taken, from == to);
      const auto first = std::ranges::find_if(given, [](const Message& message) { return message.bytes > 0; });
      for (Message& message : taken) message.slot = first != given.end() ? first->slot : 0;
    }
  }
}

}  // namespace heddle::collective
