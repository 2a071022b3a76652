// A stretch of memory that both processes of a participant map, made by rank 0 and handed over
// through its /proc entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/channel.hpp"

namespace heddle::bench::harness {

class SharedMemory {
 public:
  // Both processes call it. data() is null in both if either failed (a message on stderr says why).
  SharedMemory(Channel& channel, std::size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace heddle::bench::harness
