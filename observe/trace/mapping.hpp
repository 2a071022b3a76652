// A file in memory, for as long as it is looked at.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "base/fd.hpp"

namespace heddle::observe::trace {

class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file.valid() || ::fstat(file.get(), &status) != 0 || status.st_size <= 0) return;
    bytes_ = static_cast<std::size_t>(status.st_size);
    at_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (at_ != MAP_FAILED) ::munmap(const_cast<void*>(at_), bytes_);
  }
  [[nodiscard]] std::size_t bytes() const { return at_ == MAP_FAILED ? 0 : bytes_; }
  template <class Value>
  [[nodiscard]] const Value* at(std::size_t offset) const {
    return reinterpret_cast<const Value*>(static_cast<const std::byte*>(at_) + offset);
  }

 private:
  const void* at_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

}  // namespace heddle::observe::trace
