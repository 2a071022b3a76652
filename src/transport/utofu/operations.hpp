// What a worker has under way on its VCQ, and how a notice finds it again.
//
// A notice carries the type, the peer's VCQ, the end address at the peer and 8 bits of ours (edata); the order of notices means
// nothing. With 8 bits alone 256 operations could be told apart, which is why others empty their queues every 200 gets.
// Here an operation's lane (edata) is its index modulo 256, and no two in one lane have the same type, VCQ and address:
// take() looks at the few others of the lane before it gives an index. So a notice names exactly one operation.
#pragma once

#include <utofu.h>

#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace heddle::transport::utofu {

enum class Task : std::uint8_t { none, put, get, atomic, message, hello, read_entry, claim };

struct Operation {
  utofu_vcq_id_t vcq = 0;
  utofu_stadd_t address = 0;  // as the notice will carry it
  Token token = 0;
  void* result = nullptr;   // atomic: where the old value goes; null: nowhere
  std::uint32_t lease = 0;  // put, get: of the caller's memory, from the registration cache; 0: none
  std::uint32_t rank = 0;
  std::uint32_t channel = 0;  // message, hello, read_entry, claim
  std::uint32_t buffer = 0;   // message: of the pool, or kNoBuffer
  std::uint16_t index = 0;
  std::uint16_t turn = 0;  // how often the index was given: of the last one only is a TCQ record about a source
  std::uint8_t type = 0;   // utofu_mrq_notice_type
  std::uint8_t bytes = 0;  // atomic: of the result
  Task task = Task::none;
  bool owes_source_free = false;
  bool orphan = false;  // its completion was given, as its peer has died; what it holds is held until a notice comes
};

inline constexpr std::uint32_t kNoBuffer = ~0U;

class Operations {
 public:
  static constexpr std::uint32_t kLanes = 256;

  // `count`: at most 65536.
  explicit Operations(std::uint32_t count) : all_(count), free_(count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      all_[i].index = static_cast<std::uint16_t>(i);
      free_[i] = static_cast<std::uint16_t>(count - 1 - i);
    }
  }

  // Null: too many are under way, or 256 of this very type and place.
  Operation* take(std::uint8_t type, utofu_vcq_id_t vcq, utofu_stadd_t address) {
    for (std::size_t i = free_.size(); i > 0; --i) {
      const std::uint16_t index = free_[i - 1];
      if (lane_holds(index, type, vcq, address)) continue;
      free_[i - 1] = free_.back();
      free_.pop_back();
      Operation& operation = all_[index];
      operation.type = type;
      operation.vcq = vcq;
      operation.address = address;
      if (++operation.turn == 0) operation.turn = 1;  // so that no tag is null
      return &operation;
    }
    return nullptr;
  }
  void give_back(Operation* operation) {
    operation->task = Task::none;
    operation->owes_source_free = false;
    operation->orphan = false;
    operation->lease = 0;
    free_.push_back(operation->index);
  }

  // Null: none is like that. A notice of a failure may carry nothing but type, VCQ and edata.
  Operation* find(const utofu_mrq_notice& notice, bool failed) {
    Operation* alike = nullptr;
    for (std::size_t i = notice.edata % kLanes; i < all_.size(); i += kLanes) {
      Operation& operation = all_[i];
      if (operation.task == Task::none || operation.type != notice.notice_type || operation.vcq != notice.vcq_id) {
        continue;
      }
      if (operation.address == notice.rmt_stadd) return &operation;
      alike = &operation;
    }
    return failed ? alike : nullptr;
  }

  // What a TCQ record gives back.
  static void* tag(const Operation& operation) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): uTofu takes a pointer, and gives it back without looking at it
    return reinterpret_cast<void*>(std::uintptr_t{operation.turn} << 16 | operation.index);
  }
  // Null: that one is over.
  Operation* tagged(const void* tag) {
    const auto bits = reinterpret_cast<std::uintptr_t>(tag);
    const std::size_t index = bits & 0xFFFF;
    if (index >= all_.size() || all_[index].task == Task::none || all_[index].turn != (bits >> 16 & 0xFFFF)) {
      return nullptr;
    }
    return &all_[index];
  }

  template <class Visit>
  void for_each_under_way(Visit visit) {
    for (Operation& operation : all_) {
      if (operation.task != Task::none) visit(operation);
    }
  }

  [[nodiscard]] static std::uint64_t lane(const Operation& operation) { return operation.index % kLanes; }
  [[nodiscard]] std::size_t under_way() const { return all_.size() - free_.size(); }

 private:
  [[nodiscard]] bool lane_holds(std::size_t index, std::uint8_t type, utofu_vcq_id_t vcq, utofu_stadd_t address) const {
    for (std::size_t i = index % kLanes; i < all_.size(); i += kLanes) {
      const Operation& other = all_[i];
      if (other.task != Task::none && other.address == address && other.vcq == vcq && other.type == type) return true;
    }
    return false;
  }

  std::vector<Operation> all_;
  std::vector<std::uint16_t> free_;
};

}  // namespace heddle::transport::utofu
