// The memory of a node's board (Bootstrap::board()): its file, and a mapping of it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/fd.hpp"

namespace heddle::bootstrap {

// The system promises no more memory than it has (vm.overcommit_memory is 2).
[[nodiscard]] bool promises_are_counted();

// A file for the board of a node: kBoardBytes of zeros whose length nobody can change, without a
// name in a file system, closed on exec. Not valid: the system refuses. `whole`: it has its memory
// from the start, since a thread that touched a page without memory would get SIGBUS; otherwise
// each page gets its memory when it is touched.
[[nodiscard]] base::Fd make_board_file(bool whole = promises_are_counted());

// A board in this process's memory; it does not need the file's descriptor any more.
class NodeBoard {
 public:
  NodeBoard() = default;  // none
  NodeBoard(NodeBoard&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  NodeBoard& operator=(NodeBoard&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;
  ~NodeBoard();

  // None: the file is not one that make_board_file() has made in some process, or cannot be mapped.
  static NodeBoard map(const base::Fd& file);
  // For ranks that are threads: zeros that no other process sees.
  static NodeBoard of_process();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit NodeBoard(void* address);

  std::span<std::byte> bytes_;
};

}  // namespace heddle::bootstrap
