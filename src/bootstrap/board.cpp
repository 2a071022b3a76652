#include "bootstrap/board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap {

namespace {

constexpr int kFixedLength = F_SEAL_SHRINK | F_SEAL_GROW;

bool give_memory(int file) {
  int failed = 0;
  do {
    failed = ::fallocate(file, 0, 0, static_cast<off_t>(kBoardBytes));
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

// A shorter file would give SIGBUS, and so would one that another process can still shorten.
bool is_board_file(int file) {
  struct stat about{};
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & kFixedLength) == kFixedLength && ::fstat(file, &about) == 0 &&
         about.st_size == static_cast<off_t>(kBoardBytes);
}

}  // namespace

bool promises_are_counted() {
  char mode = '0';
  std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
  return mode == '2';
}

base::Fd make_board_file(bool whole) {
  base::Fd file(::memfd_create("heddle-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = file.valid() && ::fchmod(file.get(), S_IRUSR | S_IWUSR) == 0 &&
                    ::ftruncate(file.get(), static_cast<off_t>(kBoardBytes)) == 0 &&
                    (!whole || give_memory(file.get())) &&
                    ::fcntl(file.get(), F_ADD_SEALS, kFixedLength | F_SEAL_SEAL) == 0;
  if (!made) file.reset();
  return file;
}

NodeBoard::NodeBoard(void* address) {
  if (address != MAP_FAILED) bytes_ = {static_cast<std::byte*>(address), kBoardBytes};
}

NodeBoard::~NodeBoard() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

NodeBoard NodeBoard::map(const base::Fd& file) {
  if (!file.valid() || !is_board_file(file.get())) return {};
  return NodeBoard(::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
}

NodeBoard NodeBoard::of_process() {
  return NodeBoard(::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

}  // namespace heddle::bootstrap
