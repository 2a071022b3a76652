// The same for tests.
#include <gtest/gtest.h>

#include "precompiled_rooms.hpp"
