// Raw memory for code that copies bytes with memcpy and cannot be asked to use Plain<T>.
//
// The one thread that writes works on a draft; whenever it comes to an atomic operation, the words
// that it changed are stored word by word as if they had been Plain (through the store buffer, or
// checked for races). The others read what has become visible. The code between two atomic
// operations cannot be interrupted, so no thread sees the difference. The only exception: storing a
// word's old value again goes unnoticed, so tests write values that differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine.hpp"

namespace heddle::explore {

class Memory {
 public:
  Memory(std::uint32_t writer, std::size_t words, const char* name) : writer_(writer), draft_(words), visible_(words) {
    for (std::size_t i = 0; i < words; ++i) {
      locations_.push_back(Engine::current().add_location(0, true, &visible_[i]));
      Engine::current().name(locations_.back(), name);
    }
    Engine::current().watch(this);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::uint32_t writer() const { return writer_; }
  [[nodiscard]] std::byte* for_writer() { return reinterpret_cast<std::byte*>(draft_.data()); }
  [[nodiscard]] const std::byte* for_readers() const { return reinterpret_cast<const std::byte*>(visible_.data()); }

  // Called by the engine, and by a model's constructor between what it writes and what it reads.
  void collect() {
    known_.resize(draft_.size());
    for (std::size_t i = 0; i < draft_.size(); ++i) {
      if (draft_[i] == known_[i]) continue;
      known_[i] = draft_[i];
      Engine::current().plain_store(locations_[i], draft_[i]);
    }
  }

  // A reader has looked at these bytes since its last atomic operation: checks that this is ordered
  // against the writer.
  void note_read(const std::byte* from, std::size_t bytes) const {
    const auto first = static_cast<std::size_t>(from - for_readers());
    for (std::size_t i = first / 8; i < (first + bytes + 7) / 8; ++i) Engine::current().note_plain_read(locations_[i]);
  }

 private:
  std::uint32_t writer_;
  std::vector<std::uint64_t> draft_;
  std::vector<std::uint64_t> known_;  // the draft as last collected
  std::vector<std::uint64_t> visible_;
  std::vector<std::uint32_t> locations_;
};

}  // namespace heddle::explore
