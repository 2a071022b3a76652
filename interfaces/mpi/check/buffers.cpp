#include "mpi/check/buffers.hpp"

#include <cstdint>
#include <functional>
#include <string_view>

#include "mpi/types/loops.hpp"

namespace heddle::mpi {
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
