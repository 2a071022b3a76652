// Segments: the anonymous shared file of each process, and the mappings of one's own and of others'
// files.
//
// A file is mapped in windows of 64 MiB made on first use, so that thousands of extents cost one
// mapping; an extent that crosses a window's edge gets a mapping of its own. A window may reach
// beyond the end of the file; the file only grows (it is sealed against shrinking, so that a peer
// cannot pull memory away from under its readers).
//
// Any thread may call these. Nothing here is on the path of an operation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "transport/shm/extents.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;

class Mapping {
 public:
  explicit Mapping(int fd) : fd_(fd) {}  // owns the descriptor
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] int fd() const { return fd_; }

  // [offset, offset + bytes) as memory; offset a multiple of the page. Null with last_message():
  // RANGE if it leaves the file, SYSTEM or NO_MEMORY. The same extent gives the same address until
  // it is unmapped as often as mapped.
  [[nodiscard]] base::Result<std::byte*> map(std::uint64_t offset, std::uint64_t bytes);
  void unmap(std::uint64_t offset, std::uint64_t bytes);
  // Gives the pages of an extent that is mapped here back to the system; what is read there next
  // are zeros. False: it does not take them.
  [[nodiscard]] bool remove(std::uint64_t offset, std::uint64_t bytes);

  [[nodiscard]] std::size_t mappings();  // how many there are, for tests

 private:
  struct Own {
    std::byte* address = nullptr;
    std::uint64_t uses = 0;
  };
  using Extent = std::pair<std::uint64_t, std::uint64_t>;

  int fd_;
  std::mutex mutex_;
  std::uint64_t known_bytes_ = 0;                // the file has at least these
  std::map<std::uint64_t, std::byte*> windows_;  // by number
  std::map<Extent, Own> own_;                    // extents that cross windows
};

// This process's own segment.
class Segment {
 public:
  // control_bytes: set aside at the beginning.
  static base::Result<std::unique_ptr<Segment>> create(std::uint64_t control_bytes);

  struct Extent {
    std::uint64_t offset = 0;
    std::byte* address = nullptr;
  };
  // What the library itself writes into never lies where a region has lain: a program that goes on
  // writing by the name of a region that its owner has released may harm other regions, but no
  // ring.
  enum class Use : std::uint8_t { region, own };
  // Zeroed.
  [[nodiscard]] base::Result<Extent> allocate(std::uint64_t bytes, Use use = Use::region);
  void free(std::uint64_t offset, std::uint64_t bytes);

  [[nodiscard]] Mapping& mapping() { return *mapping_; }
  [[nodiscard]] std::uint64_t bytes_in_use() const;  // memory that the file really has, for tests

 private:
  Segment(int fd, std::uint64_t control_bytes);
  base::Status grow(std::uint64_t end);

  std::unique_ptr<Mapping> mapping_;
  std::mutex mutex_;
  Extents extents_;
  std::uint64_t file_bytes_ = 0;
};

// NotSealed peers could shrink their file under us: PROTOCOL.
base::Status check_seals(int fd, std::uint32_t rank);

}  // namespace heddle::transport::shm
