// How this backend ends a program: as LCW's other backends do, by LCW's logger and abort.
#pragma once

#include "heddle/heddle.h"

namespace heddle::for_lcw {

// Prints the text, formatted as by printf, with rank and place, and aborts.
[[noreturn, gnu::cold]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Fails unless the status is HEDDLE_DONE. `what`: the action that was tried, such as "opening a
// device".
inline void must(heddle_status status, const char* what) {
  if (status != HEDDLE_DONE) fail("%s: %s: %s", what, heddle_status_name(status), heddle_last_error());
}

// A variable of this backend that is 0 or 1; `otherwise` if it is not set. Any other value fails.
[[nodiscard]] bool flag(const char* name, bool otherwise);

}  // namespace heddle::for_lcw
