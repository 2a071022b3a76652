// The loopback transport: ranks of one process. The reference: the simplest thing that fulfils the
// contract.
//
// Every command is executed by the thread that posts it, under a lock of the target, and is
// finished when post() returns; only failures complete in a later poll(). Messages wait in one
// bounded mailbox per worker.
//
// A put or get of 4 or 8 naturally aligned bytes is a single store (release) or load (acquire);
// atomics are the processor's own. So a program may poll such a word with plain atomic loads, as it
// may on any other transport.
//
// The ranks find each other through bootstrap::Card::object. Until a peer has published its card,
// that is, has opened its transport, commands to it are not accepted, and import() waits.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace heddle::transport::loopback {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);

// Offers messages only: the protocol layer builds all other operations from them.
base::Result<std::unique_ptr<Transport>> open_messages_only(bootstrap::Bootstrap& bootstrap,
                                                            const base::Environment& environment);

}  // namespace heddle::transport::loopback
