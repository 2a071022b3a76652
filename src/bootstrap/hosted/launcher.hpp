// The part of a foreign launcher (PMI, PMIx) that joining needs: the rank of this process, and one
// value from rank 0 for all.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace heddle::bootstrap::hosted {

// The longest value that is ever put. PMI-1 promises 1024 bytes less the terminator, PMIx more.
inline constexpr std::size_t kMaxValueBytes = 1000;

// Such libraries and protocols need not be thread-safe: the owner makes all calls on one thread,
// see Service.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  virtual ~Launcher() = default;

  [[nodiscard]] virtual const char* name() const = 0;  // of the bootstrap
  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const = 0;
  // The launcher says that all ranks are on one host. False: they are not, or it does not say.
  [[nodiscard]] virtual bool one_host() = 0;

  // Collective, once: gives rank 0's `value` (letters, digits and "-.:,"; the others' is ignored)
  // to all ranks. Waits for all ranks.
  virtual base::Result<std::string> share(const std::string& value) = 0;
  // Ends the membership in good order; nothing else is called afterwards.
  virtual void finish() = 0;
  // Asks the launcher to end the job; may not return.
  virtual void abort(int code, const char* message) = 0;
};

}  // namespace heddle::bootstrap::hosted
