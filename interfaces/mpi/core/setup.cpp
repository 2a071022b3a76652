// The unit setup, without what begins and ends the job (job.cpp).
#include <units/setup.hpp>

#include <heddle/heddle.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include "mpi/communicators/comm.hpp"
#include "mpi/core/info.hpp"
#include "mpi/core/job.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {
namespace {

// MPI_Init has been called, and MPI_Finalize has not.
int check_initialized() {
  switch (g_job.phase.load(std::memory_order_acquire)) {
    case MpiJob::Phase::before:
      return error(MPI_ERR_OTHER, "MPI_Init has not been called: call it, or MPI_Init_thread, first");
    case MpiJob::Phase::finalized:
      return error(MPI_ERR_OTHER,
                   "MPI_Finalize has been called: only calls that need no process besides this one are left");
    case MpiJob::Phase::running:
      break;
  }
  return MPI_SUCCESS;
}

int store_flag(int* flag, bool value) {
  if (flag == nullptr) return null_argument("flag");
  *flag = value ? 1 : 0;
  return MPI_SUCCESS;
}

int store_text(const std::string& text, int most, char* out, const char* name, int* length) {
  if (out == nullptr) return null_argument(name);
  if (length == nullptr) return null_argument("resultlen");
  const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(most) - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = '\0';
  *length = static_cast<int>(bytes);
  return MPI_SUCCESS;
}

int store_info(const Info& info, MPI_Info* out) {
  *out = new_handle(info);
  return *out == MPI_INFO_NULL ? no_memory_for("an info") : MPI_SUCCESS;
}

// ---- Fortran ------------------------------------------------------------------------------------

// The standard's names for the sizes and the optional types of a Fortran compiler. The values come
// from the datatypes.
struct FortranKey {
  const char* key;
  MPI_Datatype type;
};
auto fortran_sizes() {
  return std::array{FortranKey{"mpi_logical_size", MPI_LOGICAL}, FortranKey{"mpi_integer_size", MPI_INTEGER},
                    FortranKey{"mpi_real_size", MPI_REAL},
                    FortranKey{"mpi_double_precision_size", MPI_DOUBLE_PRECISION}};
}
auto fortran_types() {
  return std::array{FortranKey{"mpi_logical1_supported", MPI_LOGICAL1},
                    FortranKey{"mpi_logical2_supported", MPI_LOGICAL2},
                    FortranKey{"mpi_logical4_supported", MPI_LOGICAL4},
                    FortranKey{"mpi_logical8_supported", MPI_LOGICAL8},
                    FortranKey{"mpi_logical16_supported", MPI_LOGICAL16},
                    FortranKey{"mpi_integer1_supported", MPI_INTEGER1},
                    FortranKey{"mpi_integer2_supported", MPI_INTEGER2},
                    FortranKey{"mpi_integer4_supported", MPI_INTEGER4},
                    FortranKey{"mpi_integer8_supported", MPI_INTEGER8},
                    FortranKey{"mpi_integer16_supported", MPI_INTEGER16},
                    FortranKey{"mpi_real2_supported", MPI_REAL2},
                    FortranKey{"mpi_real4_supported", MPI_REAL4},
                    FortranKey{"mpi_real8_supported", MPI_REAL8},
                    FortranKey{"mpi_real16_supported", MPI_REAL16},
                    FortranKey{"mpi_complex4_supported", MPI_COMPLEX4},
                    FortranKey{"mpi_complex8_supported", MPI_COMPLEX8},
                    FortranKey{"mpi_complex16_supported", MPI_COMPLEX16},
                    FortranKey{"mpi_complex32_supported", MPI_COMPLEX32},
                    FortranKey{"mpi_double_complex_supported", MPI_DOUBLE_COMPLEX}};
}

int check_logical_size(int size) {
  if (size == 1 || size == 2 || size == 4 || size == 8 || size == 16) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "logical_size %d: a Fortran LOGICAL has 1, 2, 4, 8 or 16 bytes", size);
}

void store_logical(int size, std::byte value, void* out) {
  auto* const bytes = static_cast<std::byte*>(out);
  std::fill_n(bytes, size, std::byte{0});
  bytes[std::endian::native == std::endian::little ? 0 : size - 1] = value;
}

int get_booleans(int logical_size, void* logical_true, void* logical_false, int* is_set) {
  if (logical_true == nullptr) return null_argument("logical_true");
  if (logical_false == nullptr) return null_argument("logical_false");
  if (is_set == nullptr) return null_argument("is_set");
  if (const int code = check_logical_size(logical_size); code != MPI_SUCCESS) return code;
  store_logical(logical_size, std::byte{1}, logical_true);
  store_logical(logical_size, std::byte{0}, logical_false);
  *is_set = 1;
  return MPI_SUCCESS;
}

int get_fortran_info(MPI_Info* out) {
  if (out == nullptr) return null_argument("info");
  Info info;
  for (const FortranKey& each : fortran_sizes()) {
    const Type* const type = type_of(each.type);
    info.set(each.key, std::to_string(type == nullptr ? 0 : type->size));
  }
  for (const FortranKey& each : fortran_types()) {
    const Type* const type = type_of(each.type);
    info.set(each.key, type != nullptr && type->size > 0 ? "true" : "false");
  }
  return store_info(info, out);
}

int get_abi_info(MPI_Info* out) {
  if (out == nullptr) return null_argument("info");
  Info info;
  info.set("mpi_aint_size", std::to_string(sizeof(MPI_Aint)));
  info.set("mpi_count_size", std::to_string(sizeof(MPI_Count)));
  info.set("mpi_offset_size", std::to_string(sizeof(MPI_Offset)));
  return store_info(info, out);
}

}  // namespace

// ---- the ABI ------------------------------------------------------------------------------------

int abi_get_version(Call call, int* abi_major, int* abi_minor) {
  if (abi_major == nullptr) return told(call, null_argument("abi_major"));
  if (abi_minor == nullptr) return told(call, null_argument("abi_minor"));
  *abi_major = MPI_ABI_VERSION;
  *abi_minor = MPI_ABI_SUBVERSION;
  return MPI_SUCCESS;
}

int abi_get_info(Call call, MPI_Info* info) {
  return told(call, guarded("an info", [&] { return get_abi_info(info); }));
}

int abi_get_fortran_info(Call call, MPI_Info* info) {
  return told(call, guarded("an info", [&] { return get_fortran_info(info); }));
}

// The sizes are fixed: those that all Fortran compilers have unless they are told to make INTEGER
// or REAL longer.
int abi_set_fortran_info(Call call, MPI_Info info) {
  if (info_of(info) == nullptr) return told(call, bad_info(info));
  return told(
      call,
      error(MPI_ERR_ABI,
            "the sizes of Fortran types are set already, and do not change: MPI_Abi_get_fortran_info tells them"));
}

int abi_get_fortran_booleans(Call call, int logical_size, void* logical_true, void* logical_false, int* is_set) {
  return told(call, get_booleans(logical_size, logical_true, logical_false, is_set));
}

int abi_set_fortran_booleans(Call call, int logical_size, void* logical_true, void* logical_false) {
  if (logical_true == nullptr) return told(call, null_argument("logical_true"));
  if (logical_false == nullptr) return told(call, null_argument("logical_false"));
  if (const int code = check_logical_size(logical_size); code != MPI_SUCCESS) return told(call, code);
  return told(call, error(MPI_ERR_ABI, "Fortran's .TRUE. and .FALSE. are set already, to 1 and 0, and do not change"));
}

// ---- versions and names -------------------------------------------------------------------------

int get_version(Call call, int* version, int* subversion) {
  if (version == nullptr) return told(call, null_argument("version"));
  if (subversion == nullptr) return told(call, null_argument("subversion"));
  *version = MPI_VERSION;
  *subversion = MPI_SUBVERSION;
  return MPI_SUCCESS;
}

int get_library_version(Call call, char* version, int* resultlen) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  heddle_version(&major, &minor, &patch);
  char text[160];
  std::snprintf(text, sizeof text, "Heddle %d.%d.%d, MPI %d.%d, ABI %d.%d; engine %d.%d.%d", HEDDLE_VERSION_MAJOR,
                HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH, MPI_VERSION, MPI_SUBVERSION, MPI_ABI_VERSION,
                MPI_ABI_SUBVERSION, major, minor, patch);
  return told(call, store_text(text, MPI_MAX_LIBRARY_VERSION_STRING, version, "version", resultlen));
}

int get_processor_name(Call call, char* name, int* resultlen) {
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  if (::gethostname(host, sizeof host - 1) != 0) {
    return told(call, error(MPI_ERR_OTHER, "gethostname: %s", std::strerror(errno)));
  }
  return told(call, store_text(host, MPI_MAX_PROCESSOR_NAME, name, "name", resultlen));
}

// ---- the job ------------------------------------------------------------------------------------

int initialized(Call call, int* flag) {
  return told(call, store_flag(flag, g_job.phase.load(std::memory_order_acquire) != MpiJob::Phase::before));
}

int finalized(Call call, int* flag) {
  return told(call, store_flag(flag, g_job.phase.load(std::memory_order_acquire) == MpiJob::Phase::finalized));
}

int is_thread_main(Call call, int* flag) {
  if (const int code = check_initialized(); code != MPI_SUCCESS) return told(call, code);
  return told(call, store_flag(flag, std::this_thread::get_id() == g_job.main_thread));
}

int query_thread(Call call, int* provided) {
  if (const int code = check_initialized(); code != MPI_SUCCESS) return told(call, code);
  if (provided == nullptr) return told(call, null_argument("provided"));
  *provided = g_job.thread_level;
  return MPI_SUCCESS;
}

int abort(Call call, MPI_Comm comm, int errorcode) {
  if (!g_job.joined) {
    if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  }
  const Comm* const which = comm_of(comm);
  if (which == nullptr) return told(call, bad_comm(comm));
  std::fflush(nullptr);
  char text[96];
  std::snprintf(text, sizeof text, "%s: called with error code %d", call, errorcode);
  // An exit code has 8 bits; an error must not become a success.
  const int low = errorcode & 0xff;
  const int code = errorcode != 0 && low == 0 ? 1 : low;
  heddle_context_abort(g_job.context, code, text);
  std::_Exit(code);
}

// No level has a meaning here; the standard leaves them all to profiling libraries, which replace
// this function.
int pcontrol(Call /*call*/, const int /*level*/) {
  return MPI_SUCCESS;
}

// ---- time ---------------------------------------------------------------------------------------

double wtime(Call /*call*/) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double wtick(Call /*call*/) {
  timespec step{};
  ::clock_getres(CLOCK_MONOTONIC, &step);
  return static_cast<double>(step.tv_sec) + static_cast<double>(step.tv_nsec) * 1e-9;
}

}  // namespace heddle::mpi
