// The commands of this process that wait for an answer. Engine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/packet.hpp"

namespace tofu_emulator {

class CommandQueue;

struct Message {
  std::uint64_t id = 0;        // 0: free
  CommandQueue* cq = nullptr;  // null: its CQ is closed; the answer is dropped
  std::uint32_t process = 0;   // the target
  std::uint32_t generation = 0;
  VcqPlace target;
  std::uint16_t slot = 0;  // the initiator's VCQ
  Opcode opcode = Opcode::nop;
  std::uint8_t edata = 0;
  bool notice = false;  // LOCAL_MRQ_NOTICE
  std::uint32_t length = 0;
  std::uint32_t left = 0;     // get: bytes that have not arrived
  int error = UTOFU_SUCCESS;  // get: the error of a piece that could not be stored
  utofu_vcq_id_t remote = 0;
  utofu_stadd_t local_stadd = 0;
  utofu_stadd_t remote_stadd = 0;
  std::uint64_t model_ns = 0;  // arrival of the latest piece
};

// Ids contain a count of the uses of their slot, so that a late answer finds no message.
class Messages {
 public:
  Message& open() {
    if (free_.empty()) {
      all_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(all_.size() - 1));
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    Message& message = all_[place];
    message = Message{};
    message.id = ++uses_ << 32 | (place + 1);
    return message;
  }
  // Null: it has completed.
  [[nodiscard]] Message* find(std::uint64_t id) {
    const std::uint64_t place = (id & 0xFFFFFFFF) - 1;
    return place < all_.size() && all_[place].id == id ? &all_[place] : nullptr;
  }
  void close(Message& message) {
    free_.push_back(static_cast<std::uint32_t>((message.id & 0xFFFFFFFF) - 1));
    message.id = 0;
  }
  [[nodiscard]] std::size_t open_count() const { return all_.size() - free_.size(); }
  // Visits the open messages; `visit` may close the one that it gets.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].id != 0) visit(all_[i]);
    }
  }

 private:
  // grows to the largest number ever open, at most kMaxMessages for each CQ
  std::vector<Message> all_;
  std::vector<std::uint32_t> free_;
  std::uint64_t uses_ = 0;  // 32 bits are used: an id returns after four thousand million commands
};

inline constexpr std::size_t kMaxMessages = 4096;  // a CQ with this many open messages waits

}  // namespace tofu_emulator
