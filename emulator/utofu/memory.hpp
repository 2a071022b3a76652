// The interfaces' hands in the application's memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Memory {
 public:
  // careful: ranges that are registered but no longer mapped are noticed (a system call for each copy); otherwise touching them
  // is the fault that it is.
  explicit Memory(bool careful) : careful_(careful) {}

  // False: the application's side is not mapped, or not as needed.
  [[nodiscard]] bool read(std::byte* to, const std::byte* application, std::size_t bytes) const;
  // In ascending order as far as it can be seen: who reads the last word (acquire) finds all before it. Words of up to 8 bytes that are
  // aligned are never seen half.
  [[nodiscard]] bool write(std::byte* application, const std::byte* from, std::size_t bytes) const;
  // bytes: 4 or 8, aligned. op: enum utofu_armw_op, 0: compare and swap. Atomic for everybody, processors included.
  [[nodiscard]] bool exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                              std::uint64_t compare, std::uint64_t* before) const;

 private:
  bool careful_;
};

}  // namespace tofu_emulator
