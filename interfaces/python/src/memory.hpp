// Memory of Python objects: its owner, its place and its length. These functions take objects with
//the buffer protocol (bytes, bytearray, memoryview, array, NumPy), else with __array_interface__,
//else with DLPack on a CPU (torch, JAX). The memory must be contiguous, in C's or Fortran's order:
//it is used as it lies there. Memory of a GPU and arrays of Python objects, which are addresses,
//are errors.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace heddle::python {

namespace nb = nanobind;

enum class Access : std::uint8_t { read, write };

// The type of an array's elements: 'b' boolean, 'i', 'u', 'f', 'c' as of NumPy's kinds; anything
// else: another one.
struct Element {
  char kind = 'u';
  std::size_t bytes = 1;
};

// The memory of an object, which stays and cannot be resized as long as this lives. Every function
// is called with the GIL.
class Memory {
 public:
  Memory() = default;
  // TypeError: no memory that Heddle can reach. BufferError: not contiguous, or read-only where it
  // is written.
  Memory(nb::handle object, Access access) {
    // The shortest path, for the objects that programs most often send in small pieces.
    if (access == Access::read && PyBytes_CheckExact(object.ptr())) {
      data_ = PyBytes_AS_STRING(object.ptr());
      bytes_ = static_cast<std::size_t>(PyBytes_GET_SIZE(object.ptr()));
      owner_ = object.ptr();
      Py_INCREF(owner_);
      return;
    }
    take(object, access);
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        element_(other.element_),
        fortran_(other.fortran_),
        owner_(std::exchange(other.owner_, nullptr)),
        view_(std::exchange(other.view_, Py_buffer{})) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(element_, other.element_);
    std::swap(fortran_, other.fortran_);
    std::swap(owner_, other.owner_);
    std::swap(view_, other.view_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { release(); }

  void release() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
    Py_CLEAR(owner_);
    data_ = nullptr;
    bytes_ = 0;
    element_ = {};
    fortran_ = false;
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const Element& element() const { return element_; }
  // Several dimensions, in Fortran's order and not in C's.
  [[nodiscard]] bool fortran() const { return fortran_; }

 private:
  void take(nb::handle object, Access access);
  bool take_buffer(nb::handle object, Access access);
  void take_dlpack(nb::handle object, Access access);
  template <class Array>
  void take_array(nb::handle object, const Array& array);
  void take_interface(nb::handle object, nb::handle interface, Access access);

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Element element_;
  bool fortran_ = false;
  PyObject* owner_ = nullptr;  // where there is no view
  Py_buffer view_{};
};

// Zeroed memory in whole pages of its own, from the system and back to it; or none.
class ZeroedPages {
 public:
  ZeroedPages() = default;
  // MemoryError
  explicit ZeroedPages(std::size_t bytes);
  ZeroedPages(ZeroedPages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ZeroedPages& operator=(ZeroedPages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ZeroedPages(const ZeroedPages&) = delete;
  ZeroedPages& operator=(const ZeroedPages&) = delete;
  ~ZeroedPages();
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace heddle::python
