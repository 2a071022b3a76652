// What the machine itself can do between two processes: caches, rings, copies and atomic
// instructions, without Heddle.
#pragma once

#include "harness/session.hpp"

namespace heddle::bench::limit {

// Memory that both processes map; made before they are forked, or by the first and mapped by the
// other. Returns 0, or 1 with a message on stderr.
int run(harness::Session& session);

}  // namespace heddle::bench::limit
