// Two transports as one: the ranks of one's own node are reached by NEAR, the others by FAR.
//
//   NEAR  one's own rank, and those of the node (bootstrap/nodes.hpp)
//   FAR   all others
//
// Ranks have the same numbers in both, so commands and completions pass as they are; a command goes
// to the transport of its rank, and a region of a peer is imported by the one that reaches it. Both
// are open in every rank, with what each shows in one card (share.hpp). Memory is registered with
// both, and its key is made of the two (at most 40 bytes each, see Capabilities::key_bytes); memory
// that one peer alone imports is registered with that peer's transport only.
//
// What both can do, the joint can. FAR rings the bell of NEAR, and the job's news does
// (Bootstrap::common_bell): so who sleeps on that one is woken by all.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace heddle::transport::joint {

// CONFIG: the two do not go together, or FAR reaches no other node. Else what they say.
base::Result<std::unique_ptr<Transport>> open(const Entry& near, const Entry& far, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment);

}  // namespace heddle::transport::joint
