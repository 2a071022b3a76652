#include "bootstrap/pmix/pmix.hpp"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "bootstrap/hosted/connect.hpp"

namespace heddle::bootstrap::pmix {
namespace {

// A socket's name is cut at 107 bytes, and PMIx allows namespaces of 255: so the part that tells
// two marks apart comes first. FNV-1a.
std::string mark_name(const std::string& name_space, const std::string& rank) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const char c : name_space) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, digest);
  return "heddle-pmix-" + rank + "-" + text.data() + "-" + name_space;
}

base::Status fail_marked(pid_t process) {
  const std::string who = process > 0 ? "process " + std::to_string(process) : std::string("another process");
  return base::fail(HEDDLE_ERR_STATE,
                    "%s has joined the launcher's job as this rank; a rank is one process (was this one started "
                    "by the rank? then unset PMIX_* for it, or set HEDDLE_BOOTSTRAP=single)",
                    who.c_str());
}

}  // namespace

base::Status mark_process(const std::string& name_space, const std::string& rank) {
  // No thread accepts connections: a process that finds the queue full must not wait in connect().
  ProcessFd mark = hosted::make_socket(AF_UNIX, SOCK_NONBLOCK);
  const hosted::LocalName name(mark_name(name_space, rank));
  if (!mark.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark this process as a rank");
  if (::bind(mark.get(), name.address(), name.length()) == 0) {
    if (::listen(mark.get(), SOMAXCONN) != 0) {
      return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark this process as a rank");
    }
    mark.stay_open();  // until the process ends
    return HEDDLE_DONE;
  }
  if (::connect(mark.get(), name.address(), name.length()) != 0) {
    return errno == EAGAIN ? fail_marked(0) : HEDDLE_DONE;
  }
  return hosted::same_user(mark.get()) ? fail_marked(hosted::process_of(mark.get())) : HEDDLE_DONE;
}

}  // namespace heddle::bootstrap::pmix
