#include "mpi/check/kinds.hpp"

#include <array>

namespace heddle::mpi {
namespace {

constexpr std::array kKindNames = {
    "bytes",
    "1-byte integers",
    "2-byte integers",
    "4-byte integers",
    "8-byte integers",
    "16-byte integers",
    "2-byte floating-point numbers",
    "4-byte floating-point numbers",
    "8-byte floating-point numbers",
    "long doubles",
    "16-byte floating-point numbers",
    "complex numbers of 2-byte parts",
    "complex numbers of 4-byte parts",
    "complex numbers of 8-byte parts",
    "complex numbers of long doubles",
    "complex numbers of 16-byte parts",
};

// Their numbers in kKindNames.
constexpr std::uint8_t integer_of(MPI_Count bytes) {
  switch (bytes) {
    case 1:
      return 1;
    case 2:
      return 2;
    case 4:
      return 3;
    case 8:
      return 4;
    case 16:
      return 5;
    default:
      return 0;
  }
}

}  // namespace

std::uint8_t kind_of(const Type& type) {
  const Type* const element = type.basic == Basic::none ? type.element : &type;
  if (element == nullptr) return 0;
  switch (element->basic) {
    case Basic::none:
    case Basic::byte:
    case Basic::pair:
      return 0;
    case Basic::float16:
      return 6;
    case Basic::float32:
      return 7;
    case Basic::float64:
      return 8;
    case Basic::long_double:
      return 9;
    case Basic::float128:
      return 10;
    case Basic::complex_half:
      return 11;
    case Basic::complex_float:
      return 12;
    case Basic::complex_double:
      return 13;
    case Basic::complex_long_double:
      return 14;
    case Basic::complex_quad:
      return 15;
    default:  // integers, logicals, characters
      return integer_of(element->size);
  }
}

const char* name_of_kind(std::uint8_t kind) {
  return kind < kKindNames.size() ? kKindNames[kind] : "elements of a kind that this library does not know";
}

int check_kind(const Comm& comm, const heddle_receive& receive, const Type& type) {
  if (receive.bytes == 0) return MPI_SUCCESS;  // no elements fit all
  const auto sent = static_cast<std::uint8_t>(receive.tag >> kKindShift & 0xff);
  const std::uint8_t wanted = kind_of(type);
  const int source = comm.rank_of_job(receive.source.rank);
  if (!kinds_fit(sent, wanted)) {
    return error(MPI_ERR_TYPE, "the message from rank %d, tag %d, is of %s, and its receive of %s", source,
                 tag_of(receive.tag), name_of_kind(sent), name_of_kind(wanted));
  }
  const auto bytes = static_cast<MPI_Count>(receive.bytes);
  if (elements_in(type, bytes) == MPI_UNDEFINED) {
    return error(MPI_ERR_TYPE,
                 "the message from rank %d, tag %d, has %lld bytes: it ends within an element of its receive's type",
                 source, tag_of(receive.tag), static_cast<long long>(bytes));
  }
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
