// Access of the network interfaces to the application's memory.
#pragma once

#include <utofu.h>

#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Memory {
 public:
  // careful: detects ranges that are registered but no longer mapped (a system call for each copy);
  // otherwise an access to them is a fault.
  explicit Memory(bool careful) : careful_(careful) {}

  // Describes the next accesses: a VCQ that named `stadd`, which is `address` here. If an access
  // without checks faults, a handler of SIGSEGV and SIGBUS prints this before the process dies of
  // the fault.
  void about(utofu_vcq_id_t vcq, utofu_stadd_t stadd, const std::byte* address) {
    vcq_ = vcq;
    stadd_ = stadd;
    address_ = address;
  }
  [[nodiscard]] utofu_vcq_id_t vcq() const { return vcq_; }
  [[nodiscard]] utofu_stadd_t stadd() const { return stadd_; }
  [[nodiscard]] const std::byte* address() const { return address_; }
  // Installs that handler, once for the process; it calls the previous handlers. `name`: gives the
  // name of a VCQ.
  using Name = void (*)(utofu_vcq_id_t vcq, char* text, std::size_t bytes);
  static void watch_faults(Name name);
  // For a thread that has all signals blocked: the handler must be able to run on it.
  static void let_faults_in();

  // False: the application's memory is not mapped, or lacks the right.
  [[nodiscard]] bool read(std::byte* to, const std::byte* application, std::size_t bytes) const;
  enum class Order : std::uint8_t { end_last, ascending };
  // end_last: the last bytes are stored after all others, so a thread that reads the last word
  // (acquire) finds everything before it. ascending: that holds for each word. Words stored in this
  // way, up to 8 bytes and aligned, are never seen half-written.
  [[nodiscard]] bool write(std::byte* application, const std::byte* from, std::size_t bytes,
                           Order order = Order::end_last) const;
  // bytes: 4 or 8, aligned. op: enum utofu_armw_op, 0: compare and swap. Atomic for all, processors
  // included.
  [[nodiscard]] bool exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                              std::uint64_t compare, std::uint64_t* before) const;

 private:
  bool careful_;
  utofu_vcq_id_t vcq_ = 0;
  utofu_stadd_t stadd_ = 0;
  const std::byte* address_ = nullptr;
};

}  // namespace tofu_emulator
