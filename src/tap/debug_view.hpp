// The structures by which a debugger finds the library's state in the memory of a process, live or
// in a core dump: plain structures that say where the numbers are. observe/gdb/heddle-gdb.py reads
// them without debugging information, and calls nothing. Decision 0063.
//
// The layout is that of C, and the script relies on it: increase kDebugVersion here and in the
// script when you change it. Nothing is written here while things move: lists change when workers
// are opened and closed, and waits are entered once they sleep.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace heddle::tap {

inline constexpr std::uint32_t kDebugVersion = 1;

// A number within a structure.
struct DebugField {
  const char* name;
  std::uint32_t offset;
  std::uint32_t bytes;
};
template <class Whole, class Part>
DebugField debug_field(const char* name, const Whole& whole, const Part& part) {
  const auto* begin = reinterpret_cast<const std::byte*>(&whole);
  const auto* at = reinterpret_cast<const std::byte*>(&part);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a part may be a pointer
  return {name, static_cast<std::uint32_t>(at - begin), sizeof(Part)};
}

// Structures of a kind, and the way from one to the next.
enum class DebugShape : std::uint32_t {
  array,  // `number` of them from `first` on, each `stride` bytes
  list,   // `first` is where the pointer to the first is; the next one's stands at offset `link`
  ring,   // the same; the last leads to the first
  // `first` is where the pointer to the buckets is, `count` where their number is (32 bits). A
  // bucket is a list by the pointers at offset `chain`, of rings by those at `link`
  table
};
struct DebugRows {
  const char* name;
  DebugShape shape;
  std::uint32_t stride;
  const void* first;
  const void* count;
  std::uint64_t number;
  std::uint32_t link;
  std::uint32_t chain;
  const DebugField* fields;
  std::uint64_t field_count;
};

// A number in memory. It is shifted right by `shift` bits.
struct DebugValue {
  const char* name;
  const void* address;
  std::uint32_t bytes;
  std::uint32_t shift;
};

struct DebugWorker {
  static constexpr std::uint32_t kMostValues = 16;
  static constexpr std::uint32_t kMostRows = 8;
  DebugWorker* next = nullptr;
  std::uint64_t handle = 0;
  std::uint32_t index = 0;
  std::uint32_t open = 0;  // 0: it is closed, and what follows means nothing
  std::uint32_t value_count = 0;
  std::uint32_t row_count = 0;
  std::array<char, 16> mode{};
  std::array<DebugValue, kMostValues> values{};
  std::array<DebugRows, kMostRows> rows{};

  // A value that has no room is not shown.
  template <class Word>
  void value(const char* name, const Word& word, std::uint32_t shift = 0) {
    if (value_count < kMostValues) values[value_count++] = {name, &word, sizeof(Word), shift};
  }
  void row(const DebugRows& one) {
    if (row_count < kMostRows) rows[row_count++] = one;
  }
};

// One thing that a wait is for: Awaited, in plain words.
struct DebugThing {
  std::uint32_t cause;
  std::uint32_t rank;    // ~0: anybody
  std::uint32_t worker;  // ~0: any, or none
  std::uint32_t reserved;
  std::array<char, 48> what;
  std::array<char, 48> tag;
};

enum class DebugWaiting : std::uint32_t { no, yes, returned };  // `returned`: it may call again

// A thread that waits.
struct DebugWait {
  static constexpr std::uint32_t kMostThings = 4;
  DebugWait* next = nullptr;
  DebugWaiting waits = DebugWaiting::no;
  std::uint32_t thread = 0;  // the kernel's number
  std::uint32_t worker = 0;  // ~0: on none, or on several
  std::uint32_t thing_count = 0;
  std::uint64_t told_ns = 0;  // how long it had waited when it told what for; 0: it did not yet
  std::array<char, 64> call{};
  std::array<char, 400> awaited{};
  std::array<DebugThing, kMostThings> things{};
};

struct DebugContext {
  DebugContext* next = nullptr;
  std::uint64_t handle = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t process = 0;  // that has joined; another one is its child by fork
  DebugWorker* workers = nullptr;
  DebugWait* waits = nullptr;
};

// A type of handles: its section of their table, and what the objects have.
struct DebugType {
  const char* name;
  std::uint64_t first;
  std::uint64_t entries;
  const DebugField* fields;
  std::uint64_t field_count;
};

struct DebugDirectory {
  std::array<char, 16> magic;
  std::uint32_t version;
  std::uint32_t bytes;  // of this structure
  const void* handles;  // entries of two words: the handle, 0 if it is closed; the object
  std::uint64_t type_count;
  const DebugType* types;
  DebugContext* contexts;
};

template <std::size_t kBytes>
void set_text(std::array<char, kBytes>& to, const char* from) {
  std::snprintf(to.data(), kBytes, "%s", from);
}

}  // namespace heddle::tap
