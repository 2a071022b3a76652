#include "mpi/check/comparison.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "mpi/collective/op.hpp"
#include "mpi/messages/post.hpp"

namespace heddle::mpi {
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

}  // namespace heddle::mpi
