#include "harness/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace heddle::bench::harness {

SharedMemory::SharedMemory(Channel& channel, std::size_t bytes) : bytes_(bytes) {
  int fd = -1;
  if (channel.rank() == 0) {
    fd = memfd_create("heddle-bench-memory", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      close(fd);
      fd = -1;
    }
  }
  const std::uint64_t name =
      channel.share((static_cast<std::uint64_t>(getpid()) << 32) | static_cast<std::uint32_t>(fd));
  if (channel.rank() == 1 && static_cast<std::int32_t>(name) >= 0) {
    const std::string path =
        "/proc/" + std::to_string(name >> 32) + "/fd/" + std::to_string(static_cast<std::uint32_t>(name));
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  if (fd >= 0) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory != MAP_FAILED) data_ = static_cast<std::byte*>(memory);
  }
  if (data_ == nullptr) std::perror("heddle bench: shared memory");
  // Both or none.
  channel.flag(0).store(0, std::memory_order_relaxed);
  channel.barrier();
  if (data_ == nullptr) channel.flag(0).store(1, std::memory_order_relaxed);
  channel.barrier();
  if (channel.flag(0).load(std::memory_order_relaxed) != 0 && data_ != nullptr) {
    munmap(data_, bytes_);
    data_ = nullptr;
  }
  if (fd >= 0) close(fd);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace heddle::bench::harness
