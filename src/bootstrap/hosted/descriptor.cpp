#include "bootstrap/hosted/descriptor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "bootstrap/common.hpp"

namespace heddle::bootstrap::hosted {

base::Result<DescriptorName> name_descriptor(int fd) {
  DescriptorName name;
  if (fd < 0) return name;
  struct stat about{};
  if (::fstat(fd, &about) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot publish descriptor %d", fd);
  name.process = static_cast<std::int32_t>(::getpid());
  name.number = fd;
  name.device = about.st_dev;
  name.file = about.st_ino;
  return name;
}

namespace {

// The entries of who has died belong to root until it is waited for, so errno does not tell.
bool is_gone(std::int32_t process) {
  const int before = errno;
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  pollfd end{pidfd.get(), POLLIN, 0};
  const bool gone = pidfd.valid() ? ::poll(&end, 1, 0) == 1 : errno == ESRCH;
  errno = before;
  return gone;
}

// Looked at first, and opened when it is the right file: the number may be that of another process, and the file a device.
base::Fd open_same(const std::string& path, const DescriptorName& name, bool* other) {
  base::Fd seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!seen.valid()) return seen;
  struct stat about{};
  *other = ::fstat(seen.get(), &about) != 0 || about.st_dev != name.device || about.st_ino != name.file;
  if (*other) return {};
  return base::Fd(::open(("/proc/self/fd/" + std::to_string(seen.get())).c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.number);
  bool other = false;
  base::Fd opened = open_same(path, name, &other);
  if (other) return fail_gone(rank);
  if (!opened.valid() && (errno == ENOENT || errno == ESRCH || is_gone(name.process))) return fail_gone(rank);
  if (!opened.valid()) {
    const base::Status status = errno == EMFILE || errno == ENFILE ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM;
    return base::fail_errno(
        status,
        "rank %u is on this machine, but its memory cannot be opened as %s (may the ranks look at each "
        "other's processes? else set HEDDLE_TRANSPORTS=ucx)",
        rank, path.c_str());
  }
  return opened;
}

}  // namespace heddle::bootstrap::hosted
