// Lists of blocks: what a rank gives to others and takes from them, and what two ranks must know of
// each other's lists.
//
// A rank that keeps has everything that arrives put into its scratch. Otherwise peers put into its
// receive once it has begun. A rank's blocks for itself are copied, whether it keeps or not. Blocks
// of no bytes are only compared, nothing else.
#pragma once

#include <span>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

// The lists of a rank, see Request::exchanges. If the request has none: equal blocks, and `kept`
// for all ranks.
Exchange exchange_of(const Request& request, Rank rank, bool kept = false);

// Where the last of these blocks ends in its buffer.
std::uint64_t extent(std::span<const Message> messages);

// Sorts the lists, and decides everything that needs no peer: the slots of the ranks that this rank
// gives to, and where in scratch blocks are kept. Peers are told `here` of each block that this
// rank takes, or `there` if it keeps the block.
void lay_out(Rank rank, Exchange* exchange);

// The blocks with one peer; the lists must be sorted.
std::span<Message> of_peer(std::vector<Message>& messages, Rank peer);
std::span<const Message> of_peer(const std::vector<Message>& messages, Rank peer);

// Bytes of scratch for the blocks that are kept.
std::uint64_t kept_bytes(Rank rank, const Exchange& exchange);

// Tells the lists of all ranks, laid out, about each other; for proofs, where no messages are sent.
void acquaint(std::span<Exchange> all);

}  // namespace heddle::collective
