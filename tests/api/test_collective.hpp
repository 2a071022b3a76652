// For tests of collective operations: ranks as threads, none of which waits for a failed one; and
// the expected result of every operation, computed byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "collective/algorithms/algorithms.hpp"

namespace heddle::test {

using collective::Operation;

// An error, or a call that is not accepted, ends this rank, with its message.
inline void must(Status status, const std::string& what) {
  if (status != HEDDLE_DONE && status != HEDDLE_POSTED) {
    throw std::runtime_error(what + ": " + heddle_status_name(status) +
                             (status < 0 ? std::string(": ") + heddle_last_error() : ""));
  }
}
inline void must_be(bool so, const std::string& what) {
  if (!so) throw std::runtime_error("not so: " + what);
}

struct Member {
  heddle_inproc_job job{};
  Context& context;
  Team& world;
  [[nodiscard]] std::uint32_t rank() const { return context.rank(); }
};

// Runs `body` once per rank with a team of all. A rank whose body throws is a failure of the test
// and of the rank: the others are told.
template <class Body>
void run_members(std::uint32_t ranks, const char* transport, Body&& body) {
  const Job job(ranks, transport);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Context context;
      try {
        context = job.join(rank);
        Team world = Team::world(context);
        Member member{job.handle(), context, world};
        body(member);
        must(heddle_barrier(world.handle()), "the last barrier");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        static_cast<void>(heddle_inproc_fail(job.handle(), rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- what is asked, and what has to come --------------------------------------------------------

inline const heddle_reduction kSumOfBytes{HEDDLE_UINT8, HEDDLE_SUM, nullptr, nullptr, 0};

// Bytes of `run` that member `rank` gives.
inline std::byte given(std::uint64_t run, std::uint32_t rank, std::uint64_t i) {
  return static_cast<std::byte>((run * 31 + rank * 7 + i * 3 + (i >> 8U)) & 0xffU);
}
// The same for many bytes, from `first` on; and added to the present contents. These loops are most
// of the work of a test of long operations, so sanitizers leave them alone: they write only the
// test's own memory.
__attribute__((no_sanitize("thread", "address", "undefined"))) inline void give(std::span<std::byte> out,
                                                                                std::uint64_t run, std::uint32_t rank,
                                                                                std::uint64_t first) {
  std::byte* const to = out.data();
  const std::uint64_t bytes = out.size();
  for (std::uint64_t i = 0; i < bytes; ++i) {
    to[i] = static_cast<std::byte>((run * 31 + rank * 7 + (first + i) * 3 + ((first + i) >> 8U)) & 0xffU);
  }
}
__attribute__((no_sanitize("thread", "address", "undefined"))) inline void add_given(std::span<std::byte> out,
                                                                                     std::uint64_t run,
                                                                                     std::uint32_t rank,
                                                                                     std::uint64_t first) {
  std::byte* const to = out.data();
  const std::uint64_t bytes = out.size();
  for (std::uint64_t i = 0; i < bytes; ++i) {
    to[i] = static_cast<std::byte>(
        (static_cast<unsigned>(to[i]) + run * 31 + rank * 7 + (first + i) * 3 + ((first + i) >> 8U)) & 0xffU);
  }
}

// Where the blocks of one side are; displacements in an order of their own, with gaps.
struct Blocks {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
  [[nodiscard]] heddle_blocks get() const { return {counts.data(), displacements.data(), 1}; }
  [[nodiscard]] std::uint64_t extent() const {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0) end = std::max<std::uint64_t>(end, displacements[i] + counts[i]);
    return end;
  }
};

// Neighbours for neighbor_alltoallv: the next, the one before, itself, and the next once more.
inline std::vector<std::uint32_t> neighbors_of(std::uint32_t rank, std::uint32_t size, bool targets) {
  const std::uint32_t next = (rank + 1) % size;
  const std::uint32_t before = (rank + size - 1) % size;
  return targets ? std::vector{next, before, rank, next} : std::vector{before, next, rank, before};
}
// The members that the blocks of one side are for, or from.
inline std::vector<std::uint32_t> peers_of(Operation operation, std::uint32_t rank, std::uint32_t size, bool sends) {
  if (operation == Operation::neighbor_alltoallv) return neighbors_of(rank, size, sends);
  std::vector<std::uint32_t> all(size);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

// The bytes that one member gives to another where members list their blocks: none, or about as
// many as asked.
inline std::uint64_t listed_bytes(Operation operation, std::uint64_t bytes, std::uint32_t root, std::uint32_t from,
                                  std::uint32_t to) {
  if (operation == Operation::gatherv && to != root) return 0;
  if (operation == Operation::scatterv && from != root) return 0;
  if (operation == Operation::allgatherv || operation == Operation::gatherv) to = 0;
  return bytes * ((from * 3 + to * 5 + 1) % 4) / 2;
}

inline Blocks listed(Operation operation, std::uint64_t bytes, std::uint32_t root, std::uint32_t rank,
                     std::uint32_t size, bool sends) {
  const std::vector<std::uint32_t> peers = peers_of(operation, rank, size, sends);
  const auto count = static_cast<std::uint32_t>(peers.size());
  // whose blocks are told apart by their places
  const bool neighbors = operation == Operation::neighbor_alltoallv;
  // All that an allgatherv or a gatherv gives is one block.
  const bool one = sends && (operation == Operation::allgatherv || operation == Operation::gatherv);
  Blocks blocks;
  blocks.counts.resize(count);
  blocks.displacements.resize(count);
  std::size_t at = sends ? 0 : 3;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t block = sends ? count - 1 - i : (i + rank) % count;
    const std::uint32_t to = neighbors ? block : sends ? peers[block] : rank;
    blocks.counts[block] = listed_bytes(operation, bytes, root, sends ? rank : peers[block], to);
    blocks.displacements[block] = one ? 0 : at;
    at += blocks.counts[block] + 1;
  }
  return blocks;
}

enum class Memory { allocated, own };
enum class Form { blocking, nonblocking, persistent };

// One member's part in an operation of blocks of `bytes` bytes.
class Part {
 public:
  struct Asked {
    Operation operation = Operation::barrier;
    std::uint64_t bytes = 0;
    std::uint32_t root = 0;
    Memory memory = Memory::own;
    bool in_place = false;
    const char* algorithm = nullptr;
    std::uint64_t segment_bytes = 0;
  };

  Part(const Context& context, const Team& team, const Asked& asked)
      : asked_(asked), team_(team.handle()), rank_(team.rank()), size_(team.size()) {
    const collective::AlgorithmRequest request{asked.operation, rank_, size_, asked.root, asked.bytes, 1, 0, {0, 0, 0}};
    if (collective::lists_blocks(asked.operation)) {
      send_blocks_ = listed(asked.operation, asked.bytes, asked.root, rank_, size_, true);
      receive_blocks_ = listed(asked.operation, asked.bytes, asked.root, rank_, size_, false);
      sources_ = peers_of(asked.operation, rank_, size_, false);
      targets_ = peers_of(asked.operation, rank_, size_, true);
      for (std::size_t block = 0; block < sources_.size(); ++block) {
        const Blocks theirs = listed(asked.operation, asked.bytes, asked.root, sources_[block], size_, true);
        begins_.push_back(
            theirs.displacements[asked.operation == Operation::neighbor_alltoallv ? block : std::size_t{rank_}]);
      }
      send_bytes_ = send_blocks_.extent();
      receive_bytes_ = receive_blocks_.extent();
      if (asked.operation == Operation::scatterv) receive_bytes_ = receive_blocks_.counts[asked.root];
    } else {
      send_bytes_ = collective::send_bytes(request, rank_);
      receive_bytes_ = collective::receive_bytes(request, rank_);
    }
    // Apart by an odd number of bytes, so that nothing is aligned.
    const std::uint64_t all = send_bytes_ + kGap + receive_bytes_;
    if (asked.memory == Memory::allocated) {
      region_ = context.alloc(all);
      memory_ = region_.memory<std::byte>().first(all);
    } else {
      own_.resize(all);
      memory_ = own_;
    }
    std::byte* begin = memory_.data();
    receive_ = begin + send_bytes_ + kGap;
    send_ = begin;
    if (in_place()) place_over();
  }

  // Whether the operation is in place at this member, if that was asked for.
  [[nodiscard]] bool in_place() const {
    return asked_.in_place && send_bytes_ > 0 && receive_bytes_ > 0 && asked_.operation != Operation::reduce_scatter &&
           asked_.operation != Operation::alltoall && asked_.operation != Operation::alltoallv &&
           asked_.operation != Operation::neighbor_alltoallv;
  }

  void fill(std::uint64_t run) {
    const bool gives = asked_.operation == Operation::broadcast && rank_ == asked_.root;
    if (receive_bytes_ > 0) {
      const auto bytes = gives ? given_bytes(run, rank_, 0, receive_bytes_) : std::vector(receive_bytes_, kUntouched);
      std::memcpy(receive_, bytes.data(), bytes.size());
    }
    if (send_bytes_ > 0) std::memcpy(send_, given_bytes(run, rank_, 0, send_bytes_).data(), send_bytes_);
  }

  void verify(std::uint64_t run) const {
    const std::vector<std::byte> wanted = expected(run);
    if (const auto wrong = first_difference(receive_, wanted); wrong < receive_bytes_) {
      throw std::runtime_error(describe() + ", run " + std::to_string(run) + ", byte " + std::to_string(wrong) +
                               " of " + std::to_string(receive_bytes_) + ": " + std::to_string(int(receive_[wrong])) +
                               ", not " + std::to_string(int(wanted[wrong])));
    }
    if (in_place()) return;
    if (const auto wrong = first_difference(send_, given_bytes(run, rank_, 0, send_bytes_)); wrong < send_bytes_) {
      throw std::runtime_error(describe() + ": it has written to what it was given, byte " + std::to_string(wrong));
    }
  }

  [[nodiscard]] Status blocking() const;
  [[nodiscard]] Status start(heddle_collective* collective) const;
  [[nodiscard]] Status init(heddle_collective* collective) const;

  // `runs` runs in this form, each verified.
  void run(Form form, std::uint64_t runs) {
    heddle_collective collective{};
    if (form == Form::persistent) must(init(&collective), describe() + ", init");
    for (std::uint64_t run = 1; run <= runs; ++run) {
      fill(run);
      if (form == Form::blocking) {
        must(blocking(), describe());
      } else {
        must(form == Form::nonblocking ? start(&collective) : heddle_collective_start(collective),
             describe() + ", start");
        must(heddle_collective_wait(collective, HEDDLE_FOREVER), describe() + ", wait");
      }
      verify(run);
    }
    if (form == Form::persistent) must(heddle_collective_free(collective), describe() + ", free");
  }

  [[nodiscard]] std::string describe() const {
    return std::string(asked_.algorithm != nullptr ? asked_.algorithm : collective::name_of(asked_.operation)) +
           " by member " + std::to_string(rank_) + " of " + std::to_string(size_) + ", root " +
           std::to_string(asked_.root) + ", " + std::to_string(asked_.bytes) + " bytes" +
           (asked_.memory == Memory::allocated ? " allocated" : "") + (asked_.in_place ? " in place" : "");
  }

 private:
  static constexpr std::uint64_t kGap = 3;
  static constexpr std::byte kUntouched{0xee};

  static std::vector<std::byte> given_bytes(std::uint64_t run, std::uint32_t rank, std::uint64_t first,
                                            std::uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    give(out, run, rank, first);
    return out;
  }
  // The number of bytes: there is none.
  static std::uint64_t first_difference(const std::byte* seen, const std::vector<std::byte>& wanted) {
    if (wanted.empty() || std::memcmp(seen, wanted.data(), wanted.size()) == 0) return wanted.size();
    std::uint64_t i = 0;
    while (seen[i] == wanted[i]) ++i;
    return i;
  }

  void place_over() {
    switch (asked_.operation) {
      case Operation::gather:
      case Operation::allgather:
        send_ = receive_ + rank_ * asked_.bytes;
        break;
      case Operation::scatter:
        receive_ = send_ + rank_ * asked_.bytes;
        break;
      case Operation::allgatherv:
      case Operation::gatherv:
        send_ = receive_ + receive_blocks_.displacements[rank_];
        break;
      case Operation::scatterv:
        receive_ = send_ + send_blocks_.displacements[rank_];
        break;
      default:
        send_ = receive_;
    }
  }

  // What `last` + 1 members give from `first` on, added up.
  void sum(std::span<std::byte> out, std::uint64_t run, std::uint32_t last, std::uint64_t first) const {
    for (std::uint32_t rank = 0; rank <= last; ++rank) add_given(out, run, rank, first);
  }
  // The bytes between blocks are unchanged.
  void expect_listed(std::span<std::byte> out, std::uint64_t run) const {
    if (asked_.operation == Operation::scatterv) return give(out, run, asked_.root, begins_[asked_.root]);
    std::fill(out.begin(), out.end(), kUntouched);
    for (std::size_t block = 0; block < sources_.size(); ++block) {
      const std::size_t bytes = receive_blocks_.counts[block];
      if (bytes == 0) continue;
      give(out.subspan(receive_blocks_.displacements[block], bytes), run, sources_[block], begins_[block]);
    }
  }
  // The expected contents of the receive buffer after a run.
  [[nodiscard]] std::vector<std::byte> expected(std::uint64_t run) const {
    const std::uint64_t n = asked_.bytes;
    std::vector<std::byte> out(receive_bytes_);
    switch (asked_.operation) {
      case Operation::broadcast:
        give(out, run, asked_.root, 0);
        break;
      case Operation::reduce:
      case Operation::allreduce:
        sum(out, run, size_ - 1, 0);
        break;
      case Operation::reduce_scatter:
        sum(out, run, size_ - 1, rank_ * n);
        break;
      case Operation::scan:
        sum(out, run, rank_, 0);
        break;
      case Operation::gather:
      case Operation::allgather:
      case Operation::alltoall:
        for (std::uint64_t i = 0; i * n < receive_bytes_; ++i) {
          const std::uint64_t first = asked_.operation == Operation::alltoall ? rank_ * n : 0;
          give(std::span(out).subspan(i * n, n), run, static_cast<std::uint32_t>(i), first);
        }
        break;
      case Operation::scatter:
        give(out, run, asked_.root, rank_ * n);
        break;
      case Operation::allgatherv:
      case Operation::alltoallv:
      case Operation::gatherv:
      case Operation::scatterv:
      case Operation::neighbor_alltoallv:
        expect_listed(out, run);
        break;
      case Operation::barrier:
      case Operation::kCount:
        break;
    }
    return out;
  }

  Asked asked_;
  heddle_team team_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::uint64_t send_bytes_ = 0;
  std::uint64_t receive_bytes_ = 0;
  Blocks send_blocks_;
  Blocks receive_blocks_;
  std::vector<std::uint32_t> sources_;  // by block
  std::vector<std::uint32_t> targets_;
  // of the blocks for this member in what the others give, by block
  std::vector<std::size_t> begins_;
  Region region_;
  std::vector<std::byte> own_;
  std::span<std::byte> memory_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
};

inline Status Part::blocking() const {
  const std::uint64_t n = asked_.bytes;
  const std::uint32_t root = asked_.root;
  const heddle_blocks blocks = send_blocks_.get();
  const heddle_blocks taken = receive_blocks_.get();
  const heddle_neighbors neighbors{sources_.data(), sources_.size(), targets_.data(), targets_.size()};
  switch (asked_.operation) {
    case Operation::barrier:
      return heddle_barrier(team_);
    case Operation::broadcast:
      return heddle_broadcast(team_, receive_, n, root);
    case Operation::reduce:
      return heddle_reduce(team_, send_, receive_, n, &kSumOfBytes, root);
    case Operation::allreduce:
      return heddle_allreduce(team_, send_, receive_, n, &kSumOfBytes);
    case Operation::gather:
      return heddle_gather(team_, send_, receive_, n, root);
    case Operation::allgather:
      return heddle_allgather(team_, send_, receive_, n);
    case Operation::scatter:
      return heddle_scatter(team_, send_, receive_, n, root);
    case Operation::alltoall:
      return heddle_alltoall(team_, send_, receive_, n);
    case Operation::reduce_scatter:
      return heddle_reduce_scatter(team_, send_, receive_, n, &kSumOfBytes);
    case Operation::scan:
      return heddle_scan(team_, send_, receive_, n, &kSumOfBytes);
    case Operation::allgatherv:
      return heddle_allgatherv(team_, send_, receive_, &taken);
    case Operation::alltoallv:
      return heddle_alltoallv(team_, send_, &blocks, receive_, &taken);
    case Operation::gatherv:
      return heddle_gatherv(team_, send_, send_bytes_, receive_, &taken, root);
    case Operation::scatterv:
      return heddle_scatterv(team_, send_, &blocks, receive_, receive_bytes_, root);
    case Operation::neighbor_alltoallv:
      return heddle_neighbor_alltoallv(team_, &neighbors, send_, &blocks, receive_, &taken);
    case Operation::kCount:
      break;
  }
  return HEDDLE_ERR_ARGUMENT;
}

inline Status Part::start(heddle_collective* to) const {
  const std::uint64_t n = asked_.bytes;
  const std::uint32_t root = asked_.root;
  const heddle_blocks blocks = send_blocks_.get();
  const heddle_blocks taken = receive_blocks_.get();
  const heddle_neighbors neighbors{sources_.data(), sources_.size(), targets_.data(), targets_.size()};
  switch (asked_.operation) {
    case Operation::barrier:
      return heddle_barrier_start(team_, to);
    case Operation::broadcast:
      return heddle_broadcast_start(team_, receive_, n, root, to);
    case Operation::reduce:
      return heddle_reduce_start(team_, send_, receive_, n, &kSumOfBytes, root, to);
    case Operation::allreduce:
      return heddle_allreduce_start(team_, send_, receive_, n, &kSumOfBytes, to);
    case Operation::gather:
      return heddle_gather_start(team_, send_, receive_, n, root, to);
    case Operation::allgather:
      return heddle_allgather_start(team_, send_, receive_, n, to);
    case Operation::scatter:
      return heddle_scatter_start(team_, send_, receive_, n, root, to);
    case Operation::alltoall:
      return heddle_alltoall_start(team_, send_, receive_, n, to);
    case Operation::reduce_scatter:
      return heddle_reduce_scatter_start(team_, send_, receive_, n, &kSumOfBytes, to);
    case Operation::scan:
      return heddle_scan_start(team_, send_, receive_, n, &kSumOfBytes, to);
    case Operation::allgatherv:
      return heddle_allgatherv_start(team_, send_, receive_, &taken, to);
    case Operation::alltoallv:
      return heddle_alltoallv_start(team_, send_, &blocks, receive_, &taken, to);
    case Operation::gatherv:
      return heddle_gatherv_start(team_, send_, send_bytes_, receive_, &taken, root, to);
    case Operation::scatterv:
      return heddle_scatterv_start(team_, send_, &blocks, receive_, receive_bytes_, root, to);
    case Operation::neighbor_alltoallv:
      return heddle_neighbor_alltoallv_start(team_, &neighbors, send_, &blocks, receive_, &taken, to);
    case Operation::kCount:
      break;
  }
  return HEDDLE_ERR_ARGUMENT;
}

inline Status Part::init(heddle_collective* to) const {
  const heddle_collective_options own{sizeof own, asked_.algorithm, asked_.segment_bytes};
  const heddle_collective_options* options = &own;
  const std::uint64_t n = asked_.bytes;
  const std::uint32_t root = asked_.root;
  const heddle_blocks blocks = send_blocks_.get();
  const heddle_blocks taken = receive_blocks_.get();
  const heddle_neighbors neighbors{sources_.data(), sources_.size(), targets_.data(), targets_.size()};
  switch (asked_.operation) {
    case Operation::barrier:
      return heddle_barrier_init(team_, options, to);
    case Operation::broadcast:
      return heddle_broadcast_init(team_, receive_, n, root, options, to);
    case Operation::reduce:
      return heddle_reduce_init(team_, send_, receive_, n, &kSumOfBytes, root, options, to);
    case Operation::allreduce:
      return heddle_allreduce_init(team_, send_, receive_, n, &kSumOfBytes, options, to);
    case Operation::gather:
      return heddle_gather_init(team_, send_, receive_, n, root, options, to);
    case Operation::allgather:
      return heddle_allgather_init(team_, send_, receive_, n, options, to);
    case Operation::scatter:
      return heddle_scatter_init(team_, send_, receive_, n, root, options, to);
    case Operation::alltoall:
      return heddle_alltoall_init(team_, send_, receive_, n, options, to);
    case Operation::reduce_scatter:
      return heddle_reduce_scatter_init(team_, send_, receive_, n, &kSumOfBytes, options, to);
    case Operation::scan:
      return heddle_scan_init(team_, send_, receive_, n, &kSumOfBytes, options, to);
    case Operation::allgatherv:
      return heddle_allgatherv_init(team_, send_, receive_, &taken, options, to);
    case Operation::alltoallv:
      return heddle_alltoallv_init(team_, send_, &blocks, receive_, &taken, options, to);
    case Operation::gatherv:
      return heddle_gatherv_init(team_, send_, send_bytes_, receive_, &taken, root, options, to);
    case Operation::scatterv:
      return heddle_scatterv_init(team_, send_, &blocks, receive_, receive_bytes_, root, options, to);
    case Operation::neighbor_alltoallv:
      return heddle_neighbor_alltoallv_init(team_, &neighbors, send_, &blocks, receive_, &taken, options, to);
    case Operation::kCount:
      break;
  }
  return HEDDLE_ERR_ARGUMENT;
}

inline std::vector<Operation> all_operations() {
  std::vector<Operation> all;
  for (int i = 0; i < static_cast<int>(Operation::kCount); ++i) all.push_back(static_cast<Operation>(i));
  return all;
}

}  // namespace heddle::test
