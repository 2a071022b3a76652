// A collective operation of the engine, with its arguments, to be called in any of the three forms.
#pragma once

#include <heddle/heddle.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::mpi {

enum class Form : std::uint8_t { blocking, nonblocking, persistent };

// Where blocks lie, in bytes from an address.
struct Places {
  std::vector<std::size_t> lengths;
  std::vector<std::size_t> offsets;
  [[nodiscard]] heddle_blocks blocks() const { return {lengths.data(), offsets.data(), 1}; }
};

enum class EngineCollective : std::uint8_t {
  barrier,
  broadcast,
  reduce,
  allreduce,
  gather,
  allgather,
  scatter,
  alltoall,
  reduce_scatter,
  scan,
  allgatherv,
  alltoallv,
  gatherv,
  scatterv,
  neighbor_alltoallv,
};

struct EngineCall {
  EngineCollective what = EngineCollective::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t amount = 0;  // bytes, or elements where there is a reduction
  std::uint32_t root = 0;
  heddle_reduction reduction{};
  Places send_places;
  Places receive_places;
  std::vector<std::uint32_t> sources;
  std::vector<std::uint32_t> targets;

  // `collective`: of the forms that have one.
  heddle_status call(heddle_team team, Form form, heddle_collective* collective) const;
  // The members' lists are compared in each call.
  [[nodiscard]] bool lists_blocks() const { return what >= EngineCollective::allgatherv; }
};

}  // namespace heddle::mpi
