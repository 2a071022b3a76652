#include "bootstrap/hosted/descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
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

base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.number);
  base::Fd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.valid() && (errno == ENOENT || errno == ESRCH)) return fail_gone(rank);
  if (!opened.valid()) {
    const base::Status status = errno == EMFILE || errno == ENFILE ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM;
    return base::fail_errno(
        status,
        "rank %u is on this machine, but its memory cannot be opened as %s (may the ranks look at each "
        "other's processes? else set HEDDLE_TRANSPORTS=ucx)",
        rank, path.c_str());
  }
  struct stat about{};
  if (::fstat(opened.get(), &about) != 0 || about.st_dev != name.device || about.st_ino != name.file) {
    return fail_gone(rank);  // another process has its number
  }
  return opened;
}

}  // namespace heddle::bootstrap::hosted
