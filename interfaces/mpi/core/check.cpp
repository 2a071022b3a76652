#include "mpi/core/check.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "mpi/collective/op.hpp"
#include "mpi/core/job.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/types/loops.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

constinit bool g_checks = false;

int read_checks(bool* wanted) {
  const char* const text = std::getenv("HEDDLE_CHECK");
  const std::string_view value = text == nullptr ? "off" : text;
  *wanted = value == "full";
  if (*wanted || value == "on" || value == "off") return MPI_SUCCESS;
  return error(MPI_ERR_OTHER, "HEDDLE_CHECK is \"%s\": it is off, on or full", text);
}

void begin_checks(bool all) {
  g_checks = all;
  if (all) std::ranges::fill(g_plain_sizes, std::uint8_t{0});
}

void tell_leaks() {
  struct Kind {
    std::size_t live;
    const char* one;
    const char* more;
    const char* free;
  };
  const std::array kinds = {
      Kind{live_requests(), "request", "requests", "MPI_Wait, MPI_Request_free"},
      Kind{live_comms(), "communicator", "communicators", "MPI_Comm_free"},
      Kind{live_windows(), "window", "windows", "MPI_Win_free"},
      Kind{live_types(), "datatype", "datatypes", "MPI_Type_free"},
      Kind{live_groups(), "group", "groups", "MPI_Group_free"},
      Kind{live_ops(), "operator", "operators", "MPI_Op_free"},
      Kind{live_infos(), "info", "infos", "MPI_Info_free"},
  };
  std::string told;
  for (const Kind& kind : kinds) {
    if (kind.live == 0) continue;
    told += (told.empty() ? "" : ", ") + std::to_string(kind.live) + ' ' + (kind.live == 1 ? kind.one : kind.more) +
            " (" + kind.free + ')';
  }
  if (told.empty()) return;
  std::fprintf(stderr, "heddle: rank %u: MPI_Finalize: the program has not freed %s\n", g_job.rank, told.c_str());
}

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

namespace {

// After so many looks that find nothing, checks whether the members live.
constexpr std::uint32_t kLooksPerLifeCheck = 64;

std::string_view function_of(Call call) {
  std::string_view name = call;
  if (name.starts_with("MPI_")) name.remove_prefix(4);
  if (name.ends_with("_c")) name.remove_suffix(2);
  return name;
}

// Members may give blocks of different lengths.
bool has_lists(std::string_view function) {
  if (function.ends_with("_init")) function.remove_suffix(5);
  return function.ends_with('v') || function.ends_with('w') || function.ends_with("educe_scatter") ||
         function.find("eighbor") != std::string_view::npos;
}

bool is_same_call(const Described& one, const Described& other) {
  return std::strncmp(one.function, other.function, sizeof one.function) == 0 && one.root == other.root &&
         one.op == other.op && one.bytes == other.bytes && kinds_fit(one.kind, other.kind);
}

std::string description_of(const Described& described) {
  std::string text = "MPI_";
  text.append(described.function, strnlen(described.function, sizeof described.function));
  if (described.root >= 0) text += ", root " + std::to_string(described.root);
  if (described.bytes != Described::kUnknown) {
    text += ", blocks of " + std::to_string(described.bytes) + " bytes";
    if (described.kind != 0) text += std::string(" of ") + name_of_kind(described.kind);
  }
  if (described.op >= 0) text += std::string(", ") + name_of(static_cast<OpKind>(described.op));
  return text;
}

}  // namespace

Comparison::Comparison(Call call, Comm& comm, const Described& described)
    : call_(call), comm_(comm.inter() ? *comm.local : comm), mine_(comm.inter() ? Described{} : described) {
  const std::string_view function = function_of(call);
  std::memcpy(mine_.function, function.data(), std::min(function.size(), sizeof mine_.function - 1));
  if (has_lists(function)) {
    mine_.bytes = Described::kUnknown;
    mine_.kind = 0;
  }
  const int size = comm_.size();
  if (size == 1) {
    sent_ = received_ = true;
    return;
  }
  const std::uint32_t sequence = comm_.compared.fetch_add(1, std::memory_order_relaxed) % InternalTag::kSequences;
  const int tag = InternalTag::kCompare + static_cast<int>(sequence);
  before_ = (comm_.rank + size - 1) % size;
  received_ = in_.receive(comm_, before_, tag, &theirs_, sizeof theirs_) != MPI_SUCCESS;
  sent_ = out_.send(comm_, (comm_.rank + 1) % size, tag, &mine_, sizeof mine_) != MPI_SUCCESS;
}

bool Comparison::test() {
  int code = MPI_SUCCESS;
  if (!sent_) sent_ = out_.test(&code);
  if (!received_ && in_.test(&code)) {
    received_ = true;
    if (code == MPI_SUCCESS && !is_same_call(mine_, theirs_)) {
      end_job(
          call_, &comm_,
          error(MPI_ERR_OTHER, "the members of the communicator do not call the same: rank %d %s; this rank, %d, %s",
                before_, description_of(theirs_).c_str(), comm_.rank, description_of(mine_).c_str()));
    }
  }
  // In that case the neighbour may have given up.
  if (!received_ && ++looks_ % kLooksPerLifeCheck == 0 && has_dead_member(comm_)) return true;
  return sent_ && received_;
}

namespace {

std::uint64_t sum_of(const Request& request) {
  std::uint64_t sum = 1;
  const auto* const buffer = static_cast<const char*>(request.buffer);
  each_block(request.count, *request.type, [&](MPI_Count offset, MPI_Count bytes) {
    const std::string_view block(buffer + offset, static_cast<std::size_t>(bytes));
    sum = sum * 0x9e3779b97f4a7c15 + std::hash<std::string_view>()(block);
  });
  return sum;
}

}  // namespace

void sum_up(Request& request) {
  request.sum = sum_of(request);
}

int check_unchanged(const Request& request) {
  // If the program has freed the request, nothing tells it when the memory may be freed.
  if (request.freed || request.peer == MPI_PROC_NULL || sum_of(request) == request.sum) return MPI_SUCCESS;
  return error(MPI_ERR_BUFFER,
               "the buffer of the send to rank %d with tag %d has changed before the send was complete: wait for it "
               "(MPI_Wait, MPI_Test) before you write there",
               request.peer, request.tag);
}

}  // namespace heddle::mpi
