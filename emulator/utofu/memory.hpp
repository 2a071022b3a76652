// The interfaces' hands in the application's memory.
#pragma once

#include <utofu.h>

#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Memory {
 public:
  // careful: ranges that are registered but no longer mapped are noticed (a system call for each
  // copy); otherwise touching them is the fault that it is.
  explicit Memory(bool careful) : careful_(careful) {}

  // For whom the next ones are done: a VCQ that named `stadd`, which is `address` here. Where
  // careless hands touch what is not mapped, a handler of SIGSEGV and SIGBUS tells that before the
  // process dies of it as it would have.
  void about(utofu_vcq_id_t vcq, utofu_stadd_t stadd, const std::byte* address) {
    vcq_ = vcq;
    stadd_ = stadd;
    address_ = address;
  }
  [[nodiscard]] utofu_vcq_id_t vcq() const { return vcq_; }
  [[nodiscard]] utofu_stadd_t stadd() const { return stadd_; }
  [[nodiscard]] const std::byte* address() const { return address_; }
  // Installs that handler, once for the process, with those that were there behind it. `name`: what
  // a VCQ is called.
  using Name = void (*)(utofu_vcq_id_t vcq, char* text, std::size_t bytes);
  static void watch_faults(Name name);
  // For a thread that has all signals blocked: the handler is run on it, too.
  static void let_faults_in();

  // False: the application's side is not mapped, or not as needed.
  [[nodiscard]] bool read(std::byte* to, const std::byte* application, std::size_t bytes) const;
  enum class Order : std::uint8_t { end_last, ascending };
  // end_last: the last bytes after all others, so who reads the last word (acquire) finds all
  // before it. ascending: that holds for each word. Of the words written so, those of up to 8 bytes
  // that are aligned are never seen half.
  [[nodiscard]] bool write(std::byte* application, const std::byte* from, std::size_t bytes,
                           Order order = Order::end_last) const;
  // bytes: 4 or 8, aligned. op: enum utofu_armw_op, 0: compare and swap. Atomic for everybody,
  // processors included.
  [[nodiscard]] bool exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                              std::uint64_t compare, std::uint64_t* before) const;

 private:
  bool careful_;
  utofu_vcq_id_t vcq_ = 0;
  utofu_stadd_t stadd_ = 0;
  const std::byte* address_ = nullptr;
};

}  // namespace tofu_emulator
