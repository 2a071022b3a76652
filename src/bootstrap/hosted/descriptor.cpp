#include "bootstrap/hosted/descriptor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

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

// The /proc entries of a dead process belong to root until it is waited for, so errno does not
// tell.
bool is_gone(std::int32_t process) {
  const int number = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (number < 0) return errno == ESRCH;
  const base::Fd pidfd(number);
  pollfd end{pidfd.get(), POLLIN, 0};
  return ::poll(&end, 1, 0) == 1;
}

struct Opened {
  base::Fd fd;
  int error = 0;
  bool other = false;  // it is another file
};

// Looks at the file first, and opens it only if it is the right one: the number may be that of
// another process, and the file a device.
Opened open_same(const std::string& path, const DescriptorName& name) {
  Opened opened;
  const int number = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (number < 0) {
    opened.error = errno;
    return opened;
  }
  const base::Fd seen(number);
  struct stat about{};
  opened.other = ::fstat(number, &about) != 0 || about.st_dev != name.device || about.st_ino != name.file;
  if (opened.other) return opened;
  const int same = ::open(("/proc/self/fd/" + std::to_string(number)).c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (same < 0) opened.error = errno;
  opened.fd.reset(same);
  return opened;
}

}  // namespace

base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.number);
  Opened opened = open_same(path, name);
  if (opened.fd.valid()) return std::move(opened.fd);
  if (opened.other || opened.error == ENOENT || opened.error == ESRCH || is_gone(name.process)) return fail_gone(rank);
  const base::Status status =
      opened.error == EMFILE || opened.error == ENFILE ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM;
  errno = opened.error;
  return base::fail_errno(status,
                          "rank %u is on this machine, but its memory cannot be opened as %s (may the ranks look at "
                          "each other's processes? else set HEDDLE_TRANSPORTS=ucx)",
                          rank, path.c_str());
}

}  // namespace heddle::bootstrap::hosted
