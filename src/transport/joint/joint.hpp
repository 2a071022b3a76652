// Two transports as one: NEAR reaches the ranks of the own node, FAR the others.
//
//   NEAR  the own rank, and the others of its node (bootstrap/common.hpp)
//   FAR   all others
//
// Ranks have the same numbers in both, so commands and completions pass as they are; a command goes
// to the transport of its rank, and the transport that reaches a peer imports its regions. Both are
// open in every rank; one card holds what each shows (parts.hpp). Memory is registered with both,
// and its key is made of the two (at most 40 bytes each, see Capabilities::key_bytes); memory that
// only one peer imports is registered with that peer's transport only.
//
// The joint transport can do what both can. FAR rings the bell of NEAR, and so do the job's events
// (Bootstrap::common_bell): so all of them wake a thread that sleeps on that bell.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace heddle::transport::joint {

// CONFIG: the two cannot be joined, or FAR reaches no other node. Else their own errors.
base::Result<std::unique_ptr<Transport>> open(const TransportRow& near, const TransportRow& far,
                                              bootstrap::Bootstrap& bootstrap, const base::Environment& environment);

}  // namespace heddle::transport::joint
