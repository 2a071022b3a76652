// The error for utofu_get_last_error: the one that a call of this thread returned last. NOT_FOUND,
// BUSY and NOT_COMPLETED are answers, not errors.
#pragma once

namespace tofu_emulator {

// Records the error and returns it.
[[gnu::cold]] int failed(int status);

// The same for a status that may also be UTOFU_SUCCESS.
inline int noted(int status) {
  return status == 0 ? 0 : failed(status);
}

}  // namespace tofu_emulator
