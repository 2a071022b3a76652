// What one rank of a loopback job shows to the others: a mailbox per worker and its regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.hpp"

namespace heddle::transport::loopback {

struct Packet {
  std::vector<std::uint64_t> words;  // so that the data is 8-byte aligned
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
};

// Packets for one worker, whether it is open yet or not. Any thread.
class Mailbox {
 public:
  static constexpr std::size_t kCapacity = 256;

  // False: full; the packet is untouched.
  [[nodiscard]] bool push(Packet& packet) {
    const std::lock_guard lock(mutex_);
    if (closed_) return true;  // dropped: nobody will read it
    if (packets_.size() == kCapacity) return false;
    packets_.push_back(std::move(packet));
    return true;
  }
  // Takes up to `most` packets.
  void take(std::size_t most, std::vector<Packet>* into) {
    const std::lock_guard lock(mutex_);
    for (; most > 0 && !packets_.empty(); --most) {
      into->push_back(std::move(packets_.front()));
      packets_.pop_front();
    }
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    packets_.clear();
  }

 private:
  std::mutex mutex_;
  std::deque<Packet> packets_;
  bool closed_ = false;
};

class Hub {
 public:
  explicit Hub(std::uint32_t workers) : mailboxes_(workers) {}

  [[nodiscard]] Mailbox& mailbox(std::uint32_t worker) { return mailboxes_[worker]; }
  [[nodiscard]] std::uint32_t workers() const { return static_cast<std::uint32_t>(mailboxes_.size()); }

  std::uint64_t add(void* address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    regions_[++last_] = {static_cast<std::byte*>(address), bytes};
    return last_;
  }
  void remove(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    regions_.erase(id);
  }

  // Runs access(pointer to [offset, offset + bytes)) while nobody else accesses this rank's regions through here. HANDLE: no
  // such region (any more). RANGE: not all of it inside.
  template <class Access>
  base::Status with(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes, Access&& access) {
    const std::lock_guard lock(mutex_);
    const auto it = regions_.find(id);
    if (it == regions_.end()) return base::fail(HEDDLE_ERR_HANDLE, "the region was released by its owner");
    if (offset > it->second.bytes || bytes > it->second.bytes - offset) {
      return base::fail(HEDDLE_ERR_RANGE, "offset %llu and %llu bytes leave a region of %llu bytes",
                        static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
                        static_cast<unsigned long long>(it->second.bytes));
    }
    access(it->second.address + offset);
    return HEDDLE_DONE;
  }

  [[nodiscard]] bool knows(std::uint64_t id, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto it = regions_.find(id);
    return it != regions_.end() && it->second.bytes == bytes;
  }

 private:
  struct Span {
    std::byte* address;
    std::uint64_t bytes;
  };
  std::vector<Mailbox> mailboxes_;
  std::mutex mutex_;
  std::map<std::uint64_t, Span> regions_;
  std::uint64_t last_ = 0;
};

}  // namespace heddle::transport::loopback
