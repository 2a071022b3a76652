// What utofu_get_last_error tells: the error that a call of this thread returned last. "Nothing
// there", "no room" and "not yet" are answers, not errors.
#pragma once

namespace tofu_emulator {

// Notes the error and returns it.
[[gnu::cold]] int failed(int status);

// The same where it may also be UTOFU_SUCCESS.
inline int noted(int status) {
  return status == 0 ? 0 : failed(status);
}

}  // namespace tofu_emulator
