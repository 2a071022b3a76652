#include "memory.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "calls.hpp"

namespace heddle::python {
namespace {

std::string type_of(nb::handle object) {
  return nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"));
}

[[noreturn]] void reject_device(nb::handle object) {
  raise(PyExc_TypeError, "this " + type_of(object) +
                             " lies in the memory of a GPU or another device, which Heddle does not reach: copy it to "
                             "the host first (torch: .cpu(), CuPy: .get())");
}

[[noreturn]] void reject_strides(nb::handle object) {
  raise(PyExc_BufferError, "this " + type_of(object) + " is not contiguous: use numpy.ascontiguousarray, or a copy");
}

[[noreturn]] void reject_objects(nb::handle object) {
  raise(PyExc_TypeError, "the elements of this " + type_of(object) +
                             " are Python objects, which mean nothing to another process: send bytes, such as those of "
                             "pickle.dumps");
}

[[noreturn]] void reject_writing(nb::handle object) {
  raise(PyExc_BufferError, "this " + type_of(object) + " is read-only, and the call writes to it");
}

// In formats of structures names stand between colons.
bool has_objects(const char* format) {
  bool in_name = false;
  for (; format != nullptr && *format != '\0'; ++format) {
    if (*format == ':') in_name = !in_name;
    if (*format == 'O' && !in_name) return true;
  }
  return false;
}

[[noreturn]] void reject_dlpack(nb::handle object, Access access) {
  if (access == Access::write) {
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(object, readable)) reject_writing(object);
  }
  raise(PyExc_TypeError, "this " + type_of(object) + " gives no DLPack tensor");
}

// Reads a format of the struct module: one element in the machine's byte order; otherwise another
// kind.
Element element_of(const char* format, Py_ssize_t itemsize) {
  Element element{'?', static_cast<std::size_t>(itemsize)};
  if (format == nullptr) return {'u', element.bytes};
  if (std::strchr("@=<", format[0]) != nullptr && format[0] != '\0') ++format;
  const bool complex = format[0] == 'Z';
  if (complex) ++format;
  if (format[0] == '\0' || format[1] != '\0') return element;
  if (format[0] == '?') {
    element.kind = 'b';
  } else if (std::strchr("bhilqn", format[0]) != nullptr) {
    element.kind = 'i';
  } else if (std::strchr("BHILQNc", format[0]) != nullptr) {
    element.kind = 'u';
  } else if (std::strchr("efdg", format[0]) != nullptr) {
    element.kind = complex ? 'c' : 'f';
  }
  return element;
}

Element element_of(nb::dlpack::dtype type) {
  Element element{'?', static_cast<std::size_t>(type.bits) * type.lanes / 8};
  if (type.lanes != 1) return element;
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Int:
      element.kind = 'i';
      break;
    case nb::dlpack::dtype_code::UInt:
      element.kind = 'u';
      break;
    case nb::dlpack::dtype_code::Float:
      element.kind = 'f';
      break;
    case nb::dlpack::dtype_code::Complex:
      element.kind = 'c';
      break;
    case nb::dlpack::dtype_code::Bool:
      element.kind = 'b';
      break;
    default:
      break;
  }
  return element;
}

}  // namespace

void Memory::take(nb::handle object, Access access) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    if (take_buffer(object, access)) return;
  }
  if (nb::hasattr(object, "__array_interface__")) {
    return take_interface(object, object.attr("__array_interface__"), access);
  }
  if (nb::hasattr(object, "__dlpack_device__")) return take_dlpack(object, access);
  if (nb::hasattr(object, "__cuda_array_interface__")) reject_device(object);
  raise(PyExc_TypeError, "this " + type_of(object) +
                             " has no memory to send or receive: pass bytes, a bytearray, a memoryview, a NumPy array, "
                             "a tensor in host memory, or a heddle.Region");
}

// False: the object has a type that the buffer protocol cannot tell, such as NumPy's datetime64.
bool Memory::take_buffer(nb::handle object, Access access) {
  const int flags = (access == Access::write ? PyBUF_WRITABLE : PyBUF_SIMPLE) | PyBUF_FORMAT;
  // In Fortran's order it is contiguous as well.
  if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_ANY_CONTIGUOUS) != 0) {
    view_ = {};
    if (PyErr_ExceptionMatches(PyExc_BufferError) == 0) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw nb::python_error();  // control-C
      PyErr_Clear();
      if (nb::hasattr(object, "__array_interface__")) return false;
      raise(PyExc_BufferError, "this " + type_of(object) + " does not give its memory");
    }
    PyErr_Clear();
    if (access == Access::write && PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FORMAT | PyBUF_ANY_CONTIGUOUS) == 0) {
      PyBuffer_Release(&view_);
      view_ = {};
      reject_writing(object);
    }
    PyErr_Clear();
    view_ = {};
    reject_strides(object);
  }
  if (has_objects(view_.format)) {
    release();
    reject_objects(object);
  }
  data_ = view_.buf;
  bytes_ = static_cast<std::size_t>(view_.len);
  element_ = element_of(view_.format, view_.itemsize);
  fortran_ = view_.ndim > 1 && PyBuffer_IsContiguous(&view_, 'C') == 0;
  return true;
}

void Memory::take_dlpack(nb::handle object, Access access) {
  const nb::object device = object.attr("__dlpack_device__")();
  if (!nb::isinstance<nb::tuple>(device) || nb::len(device) != 2) reject_dlpack(object, access);
  int kind = 0;
  if (!nb::try_cast(nb::object(device[0]), kind)) reject_dlpack(object, access);
  if (kind != nb::device::cpu::value) reject_device(object);
  if (access == Access::write) {
    nb::ndarray<> array;
    if (!nb::try_cast(object, array)) reject_dlpack(object, access);
    take_array(object, array);
  } else {
    nb::ndarray<nb::ro> array;
    if (!nb::try_cast(object, array)) reject_dlpack(object, access);
    take_array(object, array);
  }
}

// The array, not the object, owns what was exported.
template <class Array>
void Memory::take_array(nb::handle object, const Array& array) {
  std::int64_t stride = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.size() != 0 && array.stride(i) != stride) reject_strides(object);
    stride *= static_cast<std::int64_t>(array.shape(i));
  }
  data_ = const_cast<void*>(static_cast<const void*>(array.data()));
  bytes_ = array.nbytes();
  element_ = element_of(array.dtype());
  auto* const kept = new Array(array);
  owner_ = nb::capsule(kept, [](void* one) noexcept { delete static_cast<Array*>(one); }).release().ptr();
}

// numpy.org/doc/stable/reference/arrays.interface.html, version 3
void Memory::take_interface(nb::handle object, nb::handle interface, Access access) {
  const auto malformed = [object](const char* what) {
    raise(PyExc_TypeError, "the __array_interface__ of this " + type_of(object) + " " + what);
  };
  nb::dict what;
  if (!nb::try_cast(interface, what) || !what.contains("typestr") || !what.contains("shape")) malformed("is none");
  if (what.contains("strides") && !what["strides"].is_none()) reject_strides(object);
  const nb::object data = what.contains("data") ? nb::object(what["data"]) : nb::none();
  std::uintptr_t address = 0;
  if (!nb::isinstance<nb::tuple>(data) || nb::len(data) != 2 || !nb::try_cast(nb::object(data[0]), address)) {
    malformed("names no address");
  }
  if (access == Access::write && PyObject_IsTrue(nb::object(data[1]).ptr()) != 0) reject_writing(object);
  // such as "<f8": the bytes of an element follow two characters
  std::string type;
  if (!nb::try_cast(nb::object(what["typestr"]), type)) malformed("has no type");
  if (type.size() > 1 && type[1] == 'O') reject_objects(object);
  const std::size_t element_bytes = type.size() > 2 ? std::strtoul(type.c_str() + 2, nullptr, 10) : 0;
  if (element_bytes == 0) malformed("has elements without bytes");
  const char kind = type[0] == '>' && element_bytes > 1 ? '?' : type[1];
  std::size_t bytes = element_bytes;
  const nb::object shape = what["shape"];
  if (!nb::isinstance<nb::tuple>(shape)) malformed("has no shape");
  for (const nb::handle extent : nb::cast<nb::tuple>(shape)) {
    std::size_t length = 0;
    if (!nb::try_cast(extent, length) || __builtin_mul_overflow(bytes, length, &bytes)) {
      malformed("has a shape that does not fit memory");
    }
  }
  data_ = reinterpret_cast<void*>(address);
  bytes_ = bytes;
  element_ = {kind, element_bytes};
  owner_ = object.inc_ref().ptr();
}

ZeroedPages::ZeroedPages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (__builtin_add_overflow(bytes, page - 1, &bytes_)) raise(PyExc_MemoryError, "an array larger than all addresses");
  bytes_ = bytes_ / page * page;
  void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    raise(PyExc_MemoryError, "the system has no memory for an array of " + std::to_string(bytes) + " bytes");
  data_ = at;
}

ZeroedPages::~ZeroedPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace heddle::python
