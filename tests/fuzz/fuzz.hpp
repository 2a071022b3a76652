// Code that the fuzzers share. Each is one file with LLVMFuzzerTestOneInput: a program of libFuzzer
// (HEDDLE_FUZZ), or a part of the program with replay.cpp, which gives each seeded random inputs,
// so that every build tries it a little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace heddle::fuzz {

// Not assert: holds in release builds too, and the fuzzer keeps the input that broke it.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

// Takes values off the front of the input; zeroes once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(std::as_bytes(std::span(data, size))) {}

  template <class T>
  T take() {
    T value{};
    const auto part = bytes(sizeof value);
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }
  std::span<const std::byte> bytes(std::size_t most) {
    const auto part = bytes_.first(std::min(most, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return part;
  }
  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

inline bool inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

}  // namespace heddle::fuzz
