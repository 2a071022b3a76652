// Lists of blocks: what a rank gives to and takes from others, and what two ranks have to know of
// each other's lists.
//
// A rank that keeps has all that comes put into its scratch. Where it does not, peers put into its
// receive, when it has begun. Blocks of a rank for itself are copied, whether it keeps or not.
// Blocks of no bytes take part in nothing but the comparison.
#pragma once

#include <span>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

// The lists of a rank, see Request::exchanges. Where there are none, all ranks keep, or none does.
Exchange exchange_of(const Request& request, Rank rank, bool kept = false);

// Of the buffer that the blocks are in: where the last one ends.
std::uint64_t extent(std::span<const Message> messages);

// Puts the lists in order, and decides all that needs no peer: the slots of those this rank gives
// to, where in scratch blocks are kept. Peers learn from here `here`, or `there` of what is kept.
void lay_out(Rank rank, Exchange* exchange);

// Those with one peer; of lists in order.
std::span<Message> of_peer(std::vector<Message>& messages, Rank peer);
std::span<const Message> of_peer(const std::vector<Message>& messages, Rank peer);

// Bytes of scratch for what is kept.
std::uint64_t kept_bytes(Rank rank, const Exchange& exchange);

// Lets the lists of all ranks, laid out, know of each other; for proofs, where nobody tells
// anybody.
void acquaint(std::span<Exchange> all);

}  // namespace heddle::collective
