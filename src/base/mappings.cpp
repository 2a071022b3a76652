#include "base/mappings.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <optional>

namespace heddle::base {
namespace {

std::optional<MappedRange> parse(const std::string& line) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  char access[5] = {};
  MappedRange range;
  unsigned major_number = 0;
  unsigned minor_number = 0;
  std::uint64_t inode = 0;
  int name_at = 0;
  const int fields = std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &begin,
                                 &end, access, &range.offset, &major_number, &minor_number, &inode, &name_at);
  if (fields != 7) return std::nullopt;
  range.begin = begin;
  range.end = end;
  range.protection =
      (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0) | (access[2] == 'x' ? PROT_EXEC : 0);
  range.shared = access[3] == 's';
  range.device = makedev(major_number, minor_number);
  range.inode = inode;
  range.name = line.substr(static_cast<std::size_t>(name_at));
  return range;
}

// The whole text. A stream would say neither that reading failed nor that memory ran out.
std::optional<std::string> read_all(int file) {
  std::string text;
  std::array<char, 16384> piece;
  for (off_t at = 0;;) {
    const ssize_t got = pread(file, piece.data(), piece.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    at += got;
  }
}

}  // namespace

std::vector<MappedRange> read_mappings(int maps) {
  std::vector<MappedRange> all;
  const std::optional<std::string> text = read_all(maps);
  if (!text) return all;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = text->find('\n', at);
    std::optional<MappedRange> range;
    if (end != std::string::npos) range = parse(text->substr(at, end - at));
    if (!range) return {};
    all.push_back(std::move(*range));
    at = end + 1;
  }
  return all;
}

std::vector<MappedRange> read_mappings() {
  struct File {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ~File() {
      if (fd >= 0) close(fd);
    }
  };
  const File maps;
  return maps.fd < 0 ? std::vector<MappedRange>() : read_mappings(maps.fd);
}

}  // namespace heddle::base
