// The state that all parts of a context share: settings, time, log. It is passed down by reference;
// there are no globals.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"

namespace heddle::base {

struct Environment {
  Config config;
  Log log;
  Clock* clock = nullptr;  // not owned; outlives the context
};

}  // namespace heddle::base
