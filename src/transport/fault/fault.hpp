// The fault decorator: any transport, with everything happening at the worst time that the contract
// allows. HEDDLE_FAULT names the faults, as again=30,delay=5:
//
//   again     percent of posts that are refused: wholly, after part of the batch, or in storms of
//             up to 64. If not 0, every other import gets AGAIN, as if the peer's card were under
//             way
//   delay     commands, completions and arrivals are held back for up to this many polls each. A
//             command held back has been accepted: if the transport would have completed it during
//             post(), it completes later
//   latency   a network instead of memory: a command reaches the peer after this time, and its
//             completion is reported after the same time again. So a message takes this time once,
//             an operation with a completion takes it twice
//   reorder   commands, completions and arrivals overtake each other (a completion never its own
//             source_free), also those of one worker to one worker:
//             capabilities().ordered_messages is false
//   seed      with the rank and the worker's number decides all random choices: a worker that is
//             called by one thread in the same way, over a transport that answers in the same way,
//             behaves the same
//
// Without reordering, messages of one worker to one worker stay in order. All that is held back is
// bounded, and every hold ends after a number of polls or a time, so a job that makes progress
// without the decorator makes progress with it.
//
// Direct memory would bypass the decorator. It is offered only if no fault is set; otherwise
// regions import without it. The same holds for session queues and barrier gates.
// A peer's death comes from the bootstrap (inproc::ThreadJob::fail) and needs nothing here.
#pragma once

#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::fault {

// `rank` is this process's own.
base::Result<std::unique_ptr<Transport>> decorate(std::unique_ptr<Transport> inner, std::uint32_t rank,
                                                  const base::Environment& environment);

}  // namespace heddle::transport::fault
