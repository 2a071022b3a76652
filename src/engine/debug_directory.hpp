// The place from which a debugger finds what the library knows (base/debug_view.hpp): the symbol
// heddle_debug_directory, which libheddle.so exports for that alone.
#pragma once

#include <span>

#include "engine/handles.hpp"
#include "tap/debug_view.hpp"

namespace heddle::engine {

// A context that has joined, until hide_context(). Any thread.
void show_context(tap::DebugContext& context);
void hide_context(tap::DebugContext& context);
// Adds a type of objects of a room above, with their fields. `fields` must stay valid. Any thread.
void show_type(HandleType type, std::span<const tap::DebugField> fields);

}  // namespace heddle::engine
