// Atomics of libfabric.
//
// They serve only where the adapter itself changes the words (provider.cpp names these providers).
// Most providers have atomics in software: messages that the target executes when one of its
// endpoints makes progress. These endpoints are polled by several threads, and not all such code
// uses the processor's atomic instructions, so two of them may change a word at once. Nothing is
// lost without them: requests to the owner (protocol/) are messages too, and are atomic with all
// that the owner does.
//
// An adapter's atomics are atomic among themselves. Where other ranks change the same words by the
// processor's instructions, they are not used either
// (Bootstrap::atomics_beside_processors()).
#pragma once

#include "transport/ofi/library.hpp"
#include "transport/ofi/peer_state.hpp"

namespace heddle::transport::ofi {

// Whether the network has all atomics of Heddle, on words of both lengths.
[[nodiscard]] bool serves_atomics(fid_ep* endpoint);
// Begins one. It always asks for the result, whose arrival says that the word was changed.
// `descriptor`: of the transfer's slot. Returns libfabric's answer.
[[nodiscard]] long begin_atomic(fid_ep* endpoint, const Command& command, fi_addr_t to, Transfer* transfer,
                                void* descriptor);

}  // namespace heddle::transport::ofi
