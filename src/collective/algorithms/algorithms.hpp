// All algorithms: one function each, and one row each in table.cpp. All are pure functions. A
// comment at the top of each file explains its algorithms.
#pragma once

#include <span>
#include <string_view>

#include "collective/schedule.hpp"

namespace heddle::collective {

struct Algorithm {
  const char* name;  // OPERATION.WAY, for settings and `heddle info --schedule`
  Operation operation;
  const char* help;
  // Null: it supports the request; otherwise the reason, as text for people.
  const char* (*refuses)(const Request& request);
  Schedule (*schedule)(const Request& request);
  // How ranks access `receive` of others: they put into it (not into the root's in a broadcast), or
  // get from the root's.
  enum class Reach : std::uint8_t { none, put, get } reach = Reach::none;
  bool gets = false;     // only for ranks that map each other's memory
  bool session = false;  // fits the hardware's session queues
  // If ranks list their blocks and this is not Reach::put: all ranks keep what arrives. Otherwise a
  // rank keeps if its memory cannot be reached, or for few bytes.
};

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);

// The counters of slots that are filled again and again: slot s holds data; slot s may be filled.
constexpr std::uint32_t full_counter(std::uint32_t slot) {
  return 2 * slot;
}
constexpr std::uint32_t free_counter(std::uint32_t slot) {
  return 2 * slot + 1;
}

Schedule barrier_dissemination(const Request& request);
Schedule barrier_flat(const Request& request);
Schedule barrier_wide(const Request& request);

Schedule broadcast_chain(const Request& request);
Schedule broadcast_binomial(const Request& request);
Schedule broadcast_binomial_kept(const Request& request);
Schedule broadcast_flat(const Request& request);
Schedule broadcast_trinary(const Request& request);
Schedule broadcast_trinaryx3(const Request& request);
Schedule broadcast_chain_session(const Request& request);
Schedule broadcast_trinary_session(const Request& request);
Schedule broadcast_trinaryx3_session(const Request& request);
Schedule broadcast_pull(const Request& request);
Schedule broadcast_kept_pull(const Request& request);
Schedule broadcast_scatter_allgather(const Request& request);

Schedule reduce_binomial(const Request& request);
Schedule allreduce_flat(const Request& request);
Schedule allreduce_doubling(const Request& request);
Schedule allreduce_rabenseifner(const Request& request);
Schedule allreduce_ring(const Request& request);

Schedule allgather_bruck(const Request& request);
Schedule allgather_kept(const Request& request);
Schedule allgather_ring(const Request& request);
Schedule gather_linear(const Request& request);
Schedule scatter_linear(const Request& request);
Schedule alltoall_bruck(const Request& request);
Schedule alltoall_grid(const Request& request);
Schedule alltoall_kept(const Request& request);
Schedule alltoall_pairwise(const Request& request);
Schedule reduce_scatter_ring(const Request& request);
Schedule scan_doubling(const Request& request);

// Ranks list their blocks; or blocks are equal, and all ranks keep or none does.
Schedule exchange_direct(const Request& request);
Schedule exchange_kept(const Request& request);

}  // namespace heddle::collective
