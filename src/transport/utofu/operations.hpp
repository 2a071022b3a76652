// A worker's operations under way on its VCQ, and how a notice finds its operation.
//
// A notice carries the type, the peer's VCQ, the end address at the peer and 8 bits of ours
// (edata). Notices come in any order. With 8 bits alone we could tell apart 256 operations, which
// is why other libraries empty their queues every 200 gets. Here an operation's lane (edata) is its
// index modulo 256, and no two operations of one lane have the same type, VCQ and address: take()
// checks the few others of the lane before it hands out an index. So a notice names exactly one
// operation. If there are no more operations than lanes, the lane is the index, and take() checks
// nothing. Then an operation need not even say where it goes: see front().
#pragma once

#include <utofu.h>

#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace heddle::transport::utofu {

// short_message: one without a buffer.
enum class Task : std::uint8_t { none, put, get, atomic, short_message, message, hello, read_entry, claim };

constexpr std::uint8_t type_of(Task task) {
  switch (task) {
    case Task::get:
    case Task::read_entry:
      return UTOFU_MRQ_TYPE_LCL_GET;
    case Task::atomic:
    case Task::claim:
      return UTOFU_MRQ_TYPE_LCL_ARMW;
    default:
      return UTOFU_MRQ_TYPE_LCL_PUT;
  }
}

// One cache line: everything that is written when it begins and read when it ends.
struct alignas(64) TofuOperation {
  // Low byte: the notice type. High byte: the bits below, which ask for more than a completion at
  // the end. So if it equals the type in a notice, this is the operation and only its completion
  // has to be reported.
  std::uint16_t kind = kFree;
  Task task = Task::none;
  std::uint8_t bytes = 0;  // atomic: of the result
  // put, get: of the caller's memory, from the registration cache; 0: none. A free operation has
  // none
  std::uint32_t lease = 0;
  std::uint32_t peer_state = 0;  // messages, hello, read_entry, claim
  std::uint32_t rank = 0;
  std::uint32_t buffer = 0;  // message: of the pool
  Token token = 0;
  // as in the notice; not set by take_front()
  utofu_vcq_id_t vcq = 0;
  utofu_stadd_t address = 0;
  // uTofu's cbdata: the index in the low 16 bits, above them 1 + the number of retire() calls
  void* tag = nullptr;
  // atomic: where the old value goes; null: nowhere. Free operation: the next free one
  void* result = nullptr;

  static constexpr std::uint16_t kFree = 0xFFFF;
  static constexpr std::uint16_t kOwesSource = 0x100;  // source_free has to be reported before done
  // it was completed because its peer has died; the NIC has not answered yet
  static constexpr std::uint16_t kOrphan = 0x200;
  static constexpr std::uint16_t kOther = 0x400;  // there is more to do at its end

  [[nodiscard]] std::uint8_t type() const { return static_cast<std::uint8_t>(kind); }
  // It is a message with a buffer; with a notice of this type it has ended, and was not orphaned.
  [[nodiscard]] bool buffered(std::uint8_t notice_type) const {
    return task == Task::message && kind == (notice_type | kOther);
  }
  [[nodiscard]] bool has(std::uint16_t bit) const { return (kind & bit) != 0; }
  void set(std::uint16_t bit) { kind = static_cast<std::uint16_t>(kind | bit); }
  void clear(std::uint16_t bit) { kind = static_cast<std::uint16_t>(kind & ~bit); }
  [[nodiscard]] std::size_t index() const { return reinterpret_cast<std::uintptr_t>(tag) & 0xFFFF; }
};
static_assert(sizeof(TofuOperation) == 64);

inline constexpr std::uint32_t kNoBuffer = ~0U;

class TofuOperations {
 public:
  static constexpr std::uint32_t kLanes = 256;

  // `count`: at most 65536. Entries beyond it, up to the number of lanes, are never taken: they
  // exist so that every edata is a valid index.
  explicit TofuOperations(std::uint32_t count) : all_(count < kLanes ? kLanes : count), crowded_(count > kLanes) {
    first_ = all_.data();
    for (std::uint32_t i = static_cast<std::uint32_t>(all_.size()); i > 0; --i) {
      TofuOperation& operation = all_[i - 1];
      operation.tag = tag_of(1, i - 1);
      if (i > count) continue;
      operation.result = free_;
      free_ = &operation;
    }
  }
  TofuOperations(const TofuOperations&) = delete;
  TofuOperations& operator=(const TofuOperations&) = delete;

  // Null: none is free, or every free one is in a lane that holds one of the same type, VCQ and
  // address.
  TofuOperation* take(Task task, utofu_vcq_id_t vcq, utofu_stadd_t address) {
    if (crowded_ && choose(type_of(task), vcq, address) == nullptr) return nullptr;
    TofuOperation* operation = free_;
    if (operation == nullptr) [[unlikely]] {
      return nullptr;
    }
    begin(operation, task);
    take_front();
    operation->vcq = vcq;
    operation->address = address;
    return operation;
  }

  // take() in three steps, for puts, gets and short messages, if !crowded(): uTofu is called before
  // the third, so that the caller need not keep the operation in a register. First the operation
  // that is taken next; null: none is free.
  [[nodiscard]] TofuOperation* front() const { return free_; }
  static void begin(TofuOperation* operation, Task task) {
    const bool plain = task == Task::put || task == Task::get || task == Task::short_message;
    operation->kind = static_cast<std::uint16_t>(type_of(task) | (plain ? 0U : TofuOperation::kOther));
    operation->task = task;
    operation->bytes = 0;
  }
  void take_front() {
    free_ = static_cast<TofuOperation*>(free_->result);
    ++under_way_;
  }
  // Frees an operation whose lease is released and for which no TCQ record can come any more.
  void give_back(TofuOperation* operation) {
    Ends ends(*this);
    ends.give_back(operation);
    ends.finish(1);
  }
  // give_back() of several: the head of the free list stays in a register. No other function may be
  // called before finish(), which is told how many they were.
  class Ends {
   public:
    explicit Ends(TofuOperations& all) : all_(all), free_(all.free_) {}
    Ends(const Ends&) = delete;
    Ends& operator=(const Ends&) = delete;
    void give_back(TofuOperation* operation) {
      // these three together, so that they are one store
      operation->kind = TofuOperation::kFree;
      operation->task = Task::none;
      operation->bytes = 0;
      operation->result = free_;
      free_ = operation;
    }
    void finish(std::size_t count) {
      all_.free_ = free_;
      all_.under_way_ -= count;
    }

   private:
    TofuOperations& all_;
    TofuOperation* free_;
  };
  // Frees any operation. A TCQ record that still comes for it will match no operation.
  void retire(TofuOperation* operation) {
    const std::uintptr_t turn = (reinterpret_cast<std::uintptr_t>(operation->tag) >> 16) + 1;
    operation->tag = tag_of(turn, operation->index());
    operation->lease = 0;
    give_back(operation);
  }

  // For a notice of success. True: *operation is the one, and only its completion has to be
  // reported. False: use find().
  bool plain(const utofu_mrq_notice& notice, TofuOperation** operation) {
    return crowded_ ? plain_of<true>(notice, operation) : plain_of<false>(notice, operation);
  }
  // The same for callers that know crowded().
  template <bool crowded>
  bool plain_of(const utofu_mrq_notice& notice, TofuOperation** operation) {
    TofuOperation* one = crowded ? find(notice, false) : &first_[notice.edata % kLanes];
    if (crowded && one == nullptr) return false;
    *operation = one;
    return one->kind == notice.notice_type;
  }

  // Null: no such operation. A notice of a failure may carry only type, VCQ and edata.
  [[gnu::noinline]] TofuOperation* find(const utofu_mrq_notice& notice, bool failed) {
    if (!crowded_) {
      TofuOperation& operation = first_[notice.edata % kLanes];
      return is_of(operation, notice, failed) ? &operation : nullptr;
    }
    TofuOperation* alike = nullptr;
    for (std::size_t i = notice.edata % kLanes; i < all_.size(); i += kLanes) {
      TofuOperation& operation = all_[i];
      if (operation.kind == TofuOperation::kFree || operation.type() != notice.notice_type ||
          operation.vcq != notice.vcq_id) {
        continue;
      }
      if (operation.address == notice.rmt_stadd) return &operation;
      alike = &operation;
    }
    return failed ? alike : nullptr;
  }

  // The operation of a TCQ record. Null: that operation is over.
  TofuOperation* tagged(const void* tag) {
    const std::size_t index = reinterpret_cast<std::uintptr_t>(tag) & 0xFFFF;
    if (index >= all_.size() || all_[index].kind == TofuOperation::kFree || all_[index].tag != tag) return nullptr;
    return &all_[index];
  }

  template <class Visit>
  void for_each_under_way(Visit visit) {
    for (TofuOperation& operation : all_) {
      if (operation.kind != TofuOperation::kFree) visit(operation);
    }
  }

  [[nodiscard]] static std::uint64_t lane(const TofuOperation& operation) {
    return reinterpret_cast<std::uintptr_t>(operation.tag) % kLanes;
  }
  // There are more operations than lanes: taking one and finding it take longer.
  [[nodiscard]] bool crowded() const { return crowded_; }
  [[nodiscard]] std::size_t under_way() const { return under_way_; }

 private:
  // The one operation of a lane: take_front() does not say where it goes.
  static bool is_of(const TofuOperation& operation, const utofu_mrq_notice& notice, bool failed) {
    if (operation.kind == TofuOperation::kFree || operation.type() != notice.notice_type) return false;
    if (!operation.has(TofuOperation::kOther)) return true;
    return operation.vcq == notice.vcq_id && (failed || operation.address == notice.rmt_stadd);
  }
  static void* tag_of(std::uintptr_t turn, std::size_t index) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): uTofu takes a pointer, and gives it back without looking at it
    return reinterpret_cast<void*>(turn << 16 | index);
  }
  [[nodiscard]] bool lane_holds(std::size_t index, std::uint8_t type, utofu_vcq_id_t vcq, utofu_stadd_t address) const {
    for (std::size_t i = index % kLanes; i < all_.size(); i += kLanes) {
      const TofuOperation& other = all_[i];
      if (other.kind != TofuOperation::kFree && other.address == address && other.vcq == vcq && other.type() == type) {
        return true;
      }
    }
    return false;
  }
  // Moves the first free operation whose lane has no other of the same type, VCQ and address to the
  // front of the free list. Null: there is none.
  [[gnu::noinline]] TofuOperation* choose(std::uint8_t type, utofu_vcq_id_t vcq, utofu_stadd_t address) {
    TofuOperation* before = nullptr;
    for (TofuOperation* at = free_; at != nullptr; before = at, at = static_cast<TofuOperation*>(at->result)) {
      if (lane_holds(at->index(), type, vcq, address)) continue;
      if (before != nullptr) {
        before->result = at->result;
        at->result = free_;
        free_ = at;
      }
      return at;
    }
    return nullptr;
  }

  std::vector<TofuOperation> all_;
  TofuOperation* first_ = nullptr;
  TofuOperation* free_ = nullptr;
  std::size_t under_way_ = 0;
  const bool crowded_;
};

}  // namespace heddle::transport::utofu
