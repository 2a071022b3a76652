// The arguments that the C functions pass to their implementations. Each implementation serves
// MPI_Name and MPI_Name_c.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace heddle::mpi {

// The name of the function that the program called, for messages.
using Call = const char*;

static_assert(std::is_same_v<MPI_Aint, MPI_Count>, "one 64-bit type for lengths and addresses: LP64 systems");

// The most bytes that are moved at once.
inline constexpr MPI_Count kMostBytes = MPI_Count{1} << 48;

// A list of numbers that the program passes: of int, or of MPI_Count and MPI_Aint. May be null.
class CountList {
 public:
  CountList() = default;
  // NOLINT(google-explicit-constructor): how the C functions pass it
  CountList(const int* narrow) : narrow_(narrow) {}
  CountList(const MPI_Count* wide) : wide_(wide) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] MPI_Count operator[](std::ptrdiff_t i) const { return narrow_ != nullptr ? narrow_[i] : wide_[i]; }
  [[nodiscard]] bool present() const { return narrow_ != nullptr || wide_ != nullptr; }
  [[nodiscard]] const int* narrow() const { return narrow_; }  // null: a wide one
  [[nodiscard]] const MPI_Count* wide() const { return wide_; }

 private:
  const int* narrow_ = nullptr;
  const MPI_Count* wide_ = nullptr;
};

// The place to store a number: an int, or a MPI_Count or MPI_Aint.
class CountOut {
 public:
  CountOut(int* narrow) : narrow_(narrow) {}  // NOLINT(google-explicit-constructor)
  CountOut(MPI_Count* wide) : wide_(wide) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool present() const { return narrow_ != nullptr || wide_ != nullptr; }
  [[nodiscard]] bool fits(MPI_Count value) const {
    return narrow_ == nullptr || (value >= INT_MIN && value <= INT_MAX);
  }
  // The stored value, for arguments that are read and written.
  [[nodiscard]] MPI_Count get() const { return narrow_ != nullptr ? *narrow_ : *wide_; }
  // A value that an int cannot hold is stored as MPI_UNDEFINED.
  void set(MPI_Count value) const {
    if (narrow_ != nullptr)
      *narrow_ = fits(value) ? static_cast<int>(value) : MPI_UNDEFINED;
    else
      *wide_ = value;
  }

 private:
  int* narrow_ = nullptr;
  MPI_Count* wide_ = nullptr;
};

// Predefined handles are smaller than any address.
inline constexpr std::uintptr_t kPredefined = 0x1000;
template <class Handle>
inline std::uintptr_t value_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

// The one way from numbers to pointers: of predefined handles, and of addresses that the program
// gives as MPI_Aint or that a message carries.
inline void* pointer_from(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): so says the ABI
}
template <class Handle>
inline Handle handle_from(std::uintptr_t value) {
  return static_cast<Handle>(pointer_from(value));
}

// The library's own data in a status, beside the standard's fields.

// MPI_internal[0] and [1]: the number of bytes received; [2]: whether it was cancelled.
[[nodiscard]] inline MPI_Count bytes_of(const MPI_Status& status) {
  MPI_Count bytes = 0;
  std::memcpy(&bytes, status.MPI_internal, sizeof bytes);
  return bytes;
}
inline void set_bytes(MPI_Status* status, MPI_Count bytes) {
  std::memcpy(status->MPI_internal, &bytes, sizeof bytes);
}
[[nodiscard]] inline bool is_cancelled(const MPI_Status& status) {
  return status.MPI_internal[2] != 0;
}
inline void set_cancelled(MPI_Status* status, bool cancelled) {
  status->MPI_internal[2] = cancelled ? 1 : 0;
}

// Numbers of 128 bits: sums and products of 64-bit ones fit.

__extension__ using Int128 = __int128;
__extension__ using UnsignedInt128 = unsigned __int128;

}  // namespace heddle::mpi
