// Which cache lines a thread writes. The library and the test are compiled as for ThreadSanitizer:
// before each access to memory the compiler calls a function, and atomic operations are such
// functions. watch.cpp has these functions in place of ThreadSanitizer's library: they note writes,
// and do the atomic operations.
//
// Everything the notes need is in watch.cpp, which is compiled without those calls. Nothing here is
// inline: of two copies of such a function the linker might take the one that calls itself.
#pragma once

#include <cstdint>

namespace heddle::sharing {

// The writes of one thread to one cache line.
struct Line {
  std::uintptr_t number = 0;  // the address by the length of a line; 0: none
  std::uint32_t writes = 0;
  // The first two places in the program that did it.
  const void* places[2] = {};
};

// The lines that one thread has written in one phase.
class Record {
 public:
  static constexpr std::uint32_t kLines = 1U << 14;

  Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();
  void clear();
  void note(std::uintptr_t line, const void* place);
  [[nodiscard]] const Line* begin() const;
  [[nodiscard]] const Line* end() const;
  // There were more lines than it has room for.
  [[nodiscard]] bool overflowed() const;

 private:
  Line* lines_;
  std::uint32_t used_ = 0;
};

// From now on the calling thread's writes go into this record; null: nowhere.
void watch(Record* record);

}  // namespace heddle::sharing
