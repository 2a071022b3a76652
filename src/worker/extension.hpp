// The protocol that a room above adds to every worker (messages of wire::kExtension). The worker
// owns it, and the worker room knows no more about it.
#pragma once

#include <memory>

#include "engine/protocol.hpp"

namespace heddle::engine {

class Worker;

// May throw std::bad_alloc. Destroyed when nobody uses the worker any more.
using OpenExtension = std::unique_ptr<Protocol> (*)(Worker& worker);

}  // namespace heddle::engine
