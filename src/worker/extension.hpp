// What a room above adds to every worker: a protocol of its own (messages of
// wire::kExtension), which the worker owns. The worker room knows no more about it.
#pragma once

#include <memory>

#include "engine/protocol.hpp"

namespace heddle::engine {

class Worker;

// May throw std::bad_alloc. Destroyed when nobody uses the worker any more.
using OpenExtension = std::unique_ptr<Protocol> (*)(Worker& worker);

}  // namespace heddle::engine
