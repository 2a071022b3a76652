// Teams and collective operations of collectives.h with owners and spans. Part of heddle.hpp, which
// includes it.
//
// Functions that make teams or persistent operations throw heddle::Error; operations return the C
// status. Blocks are spans of one type. A buffer with a block for each member has size × the
// block's length; the caller must check this, since the library only gets the block's length.
#ifndef HEDDLE_COLLECTIVES_HPP
#define HEDDLE_COLLECTIVES_HPP

#include <complex>
#include <optional>
#include <type_traits>

#include "heddle/heddle.hpp"

namespace heddle {

namespace detail {

template <class T>
constexpr heddle_type type_of() {
  if constexpr (std::is_same_v<T, float>) return HEDDLE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return HEDDLE_DOUBLE;
  if constexpr (std::is_same_v<T, std::complex<float>>) return HEDDLE_COMPLEX_FLOAT;
  if constexpr (std::is_same_v<T, std::complex<double>>) return HEDDLE_COMPLEX_DOUBLE;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) {
    constexpr int kLog2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<heddle_type>((std::is_signed_v<T> ? HEDDLE_INT8 : HEDDLE_UINT8) + kLog2);
  }
  return static_cast<heddle_type>(0);
}

template <class T>
constexpr heddle_blocks blocks_of(std::span<const std::size_t> counts, std::span<const std::size_t> displacements) {
  return {counts.data(), displacements.empty() ? nullptr : displacements.data(), sizeof(T)};
}

// Waits for a run that is under way, since the memory that it uses must outlive it, and frees the
// operation.
inline heddle_status end_persistent(heddle_collective collective) {
  static_cast<void>(heddle_collective_wait(collective, HEDDLE_FOREVER));
  return heddle_collective_free(collective);
}
// The wait closes the handle.
inline heddle_status end_started(heddle_collective collective) {
  return heddle_collective_wait(collective, HEDDLE_FOREVER);
}

}  // namespace detail

// The members from which a member receives and to which it sends; the lists must live until the
// call that reads them returns.
[[nodiscard]] constexpr heddle_neighbors neighbors(std::span<const std::uint32_t> sources,
                                                   std::span<const std::uint32_t> targets) noexcept {
  return {sources.data(), sources.size(), targets.data(), targets.size()};
}

// How elements of T are combined. For a function of the program, fill in a heddle_reduction.
template <class T>
[[nodiscard]] constexpr heddle_reduction reduction(heddle_operator op) noexcept {
  static_assert(detail::type_of<T>() != static_cast<heddle_type>(0), "no heddle_type: use a function of your own");
  return {detail::type_of<T>(), op, nullptr, nullptr, 0};
}

// An operation that is made once and run again and again. The destructor waits for a run that is
// under way, also when an exception unwinds past it: catch exceptions inside its scope if the other
// members must not wait for this one.
class Persistent : public Owner<heddle_collective, detail::end_persistent> {
 public:
  using Owner::Owner;
  [[nodiscard]] Status start() const noexcept { return heddle_collective_start(handle_); }
  [[nodiscard]] Status test() const noexcept { return heddle_collective_test(handle_); }
  [[nodiscard]] Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) const noexcept {
    return heddle_collective_wait(handle_, timeout_ns);
  }
  [[nodiscard]] const char* algorithm() const {
    const char* name = nullptr;
    check(heddle_collective_algorithm(handle_, &name));
    return name;
  }
  [[nodiscard]] bool offloaded() const {
    int offloaded = 0;
    check(heddle_collective_offloaded(handle_, &offloaded));
    return offloaded != 0;
  }
};

// A nonblocking operation. wait() and test() release the handle when it completes; before that the
// destructor waits, also when an exception unwinds.
class Started : public Owner<heddle_collective, detail::end_started> {
 public:
  using Owner::Owner;
  [[nodiscard]] Status test() noexcept { return ended(heddle_collective_test(handle_)); }
  [[nodiscard]] Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) noexcept {
    return ended(heddle_collective_wait(handle_, timeout_ns));
  }

 private:
  // STATE: called inside a handler; the operation goes on.
  Status ended(Status status) noexcept {
    if (status != HEDDLE_AGAIN && status != HEDDLE_ERR_TIMEOUT && status != HEDDLE_ERR_STATE) {
      static_cast<void>(release());
    }
    return status;
  }
};

// Some ranks of a job. Valid from the context's join to its leave. A default Team has the null
// handle, and so has the Team of a rank that is in no team.
class Team : public Owner<heddle_team, heddle_team_free> {
 public:
  using Owner::Owner;

  // Collective, as the C functions of the same names.
  [[nodiscard]] static Team world(const Context& context) {
    heddle_team team{};
    check(heddle_team_world(context.handle(), &team));
    return Team(team);
  }
  [[nodiscard]] Team split(std::optional<std::uint32_t> colour, std::int64_t key = 0) const {
    heddle_team team{};
    check(heddle_team_split(handle_, colour.value_or(HEDDLE_NO_COLOUR), key, &team));
    return Team(team);
  }
  [[nodiscard]] Team strided(std::uint32_t start, std::int32_t stride, std::uint32_t size) const {
    heddle_team team{};
    check(heddle_team_strided(handle_, start, stride, size, &team));
    return Team(team);
  }
  [[nodiscard]] Team subset(std::span<const std::uint32_t> ranks) const {
    heddle_team team{};
    check(heddle_team_subset(handle_, ranks.data(), static_cast<std::uint32_t>(ranks.size()), &team));
    return Team(team);
  }

  [[nodiscard]] std::uint32_t rank() const {
    std::uint32_t rank = 0;
    check(heddle_team_rank(handle_, &rank));
    return rank;
  }
  [[nodiscard]] std::uint32_t size() const {
    std::uint32_t size = 0;
    check(heddle_team_size(handle_, &size));
    return size;
  }
  // Returns the number in `to` of member `rank` of this team; HEDDLE_NO_RANK: it is no member of
  // `to`.
  [[nodiscard]] std::uint32_t translate(std::uint32_t rank, const Team& to) const {
    std::uint32_t other = 0;
    check(heddle_team_translate(handle_, rank, to.handle(), &other));
    return other;
  }

  // Blocking.
  [[nodiscard]] Status barrier() const noexcept { return heddle_barrier(handle_); }
  template <class T>
  [[nodiscard]] Status broadcast(std::span<T> data, std::uint32_t root) const noexcept {
    return heddle_broadcast(handle_, data.data(), data.size_bytes(), root);
  }
  // Only the root needs receive; elsewhere it may be null.
  template <class T>
  [[nodiscard]] Status reduce(std::span<const T> send, T* receive, heddle_operator op,
                              std::uint32_t root) const noexcept {
    const heddle_reduction how = reduction<T>(op);
    return heddle_reduce(handle_, send.data(), receive, send.size(), &how, root);
  }
  template <class T>
  [[nodiscard]] Status allreduce(std::span<const T> send, T* receive, heddle_operator op) const noexcept {
    const heddle_reduction how = reduction<T>(op);
    return heddle_allreduce(handle_, send.data(), receive, send.size(), &how);
  }
  // In place.
  template <class T>
  [[nodiscard]] Status allreduce(std::span<T> data, heddle_operator op) const noexcept {
    return allreduce<T>(std::span<const T>(data), data.data(), op);
  }
  // For one value: returns the combined value. Throws Error.
  template <class T>
  [[nodiscard]] T allreduce(const T& mine, heddle_operator op) const {
    T all{};
    check(allreduce<T>(std::span(&mine, 1), &all, op));
    return all;
  }
  template <class T>
  [[nodiscard]] Status gather(std::span<const T> send, T* receive, std::uint32_t root) const noexcept {
    return heddle_gather(handle_, send.data(), receive, send.size_bytes(), root);
  }
  template <class T>
  [[nodiscard]] Status allgather(std::span<const T> send, T* receive) const noexcept {
    return heddle_allgather(handle_, send.data(), receive, send.size_bytes());
  }
  template <class T>
  [[nodiscard]] Status scatter(const T* send, std::span<T> receive, std::uint32_t root) const noexcept {
    return heddle_scatter(handle_, send, receive.data(), receive.size_bytes(), root);
  }
  // `send` and `receive` have size() × `block` elements.
  template <class T>
  [[nodiscard]] Status alltoall(const T* send, T* receive, std::size_t block) const noexcept {
    return heddle_alltoall(handle_, send, receive, block * sizeof(T));
  }
  // Blocks of any lengths, in elements of T: see heddle_blocks. counts, and displacements unless
  // empty, have an entry for each member. The caller must check that `send` is as long as its
  // count.
  template <class T>
  [[nodiscard]] Status allgatherv(const T* send, T* receive, std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements = {}) const noexcept {
    const heddle_blocks blocks = detail::blocks_of<T>(counts, displacements);
    return heddle_allgatherv(handle_, send, receive, &blocks);
  }
  // One block after the other, on both sides.
  template <class T>
  [[nodiscard]] Status alltoallv(const T* send, std::span<const std::size_t> send_counts, T* receive,
                                 std::span<const std::size_t> receive_counts) const noexcept {
    return alltoallv<T>(send, send_counts, {}, receive, receive_counts, {});
  }
  template <class T>
  [[nodiscard]] Status alltoallv(const T* send, std::span<const std::size_t> send_counts,
                                 std::span<const std::size_t> send_displacements, T* receive,
                                 std::span<const std::size_t> receive_counts,
                                 std::span<const std::size_t> receive_displacements) const noexcept {
    const heddle_blocks given = detail::blocks_of<T>(send_counts, send_displacements);
    const heddle_blocks taken = detail::blocks_of<T>(receive_counts, receive_displacements);
    return heddle_alltoallv(handle_, send, &given, receive, &taken);
  }
  // Only the root needs receive and counts.
  template <class T>
  [[nodiscard]] Status gatherv(std::span<const T> send, T* receive, std::span<const std::size_t> counts,
                               std::uint32_t root) const noexcept {
    const heddle_blocks blocks = detail::blocks_of<T>(counts, {});
    return heddle_gatherv(handle_, send.data(), send.size_bytes(), receive, &blocks, root);
  }
  // Only the root needs send and counts.
  template <class T>
  [[nodiscard]] Status scatterv(const T* send, std::span<const std::size_t> counts, std::span<T> receive,
                                std::uint32_t root) const noexcept {
    const heddle_blocks blocks = detail::blocks_of<T>(counts, {});
    return heddle_scatterv(handle_, send, &blocks, receive.data(), receive.size_bytes(), root);
  }
  // `send` has size() × receive.size() elements.
  template <class T>
  [[nodiscard]] Status reduce_scatter(const T* send, std::span<T> receive, heddle_operator op) const noexcept {
    const heddle_reduction how = reduction<T>(op);
    return heddle_reduce_scatter(handle_, send, receive.data(), receive.size(), &how);
  }
  template <class T>
  [[nodiscard]] Status scan(std::span<const T> send, T* receive, heddle_operator op) const noexcept {
    const heddle_reduction how = reduction<T>(op);
    return heddle_scan(handle_, send.data(), receive, send.size(), &how);
  }

  // Among neighbours: a block of `block` elements for each target, and from each source.
  template <class T>
  [[nodiscard]] Status neighbor_alltoall(const heddle_neighbors& neighbors, const T* send, T* receive,
                                         std::size_t block) const noexcept {
    return heddle_neighbor_alltoall(handle_, &neighbors, send, receive, block * sizeof(T));
  }
  // `send_counts[i]` elements to target i, `receive_counts[i]` from source i; one block after the
  // other, on both sides.
  template <class T>
  [[nodiscard]] Status neighbor_alltoallv(const heddle_neighbors& neighbors, const T* send,
                                          std::span<const std::size_t> send_counts, T* receive,
                                          std::span<const std::size_t> receive_counts) const noexcept {
    const heddle_blocks given = detail::blocks_of<T>(send_counts, {});
    const heddle_blocks taken = detail::blocks_of<T>(receive_counts, {});
    return heddle_neighbor_alltoallv(handle_, &neighbors, send, &given, receive, &taken);
  }
  // `send` to all targets.
  template <class T>
  [[nodiscard]] Status neighbor_allgather(const heddle_neighbors& neighbors, std::span<const T> send,
                                          T* receive) const noexcept {
    return heddle_neighbor_allgather(handle_, &neighbors, send.data(), receive, send.size_bytes());
  }

  // Nonblocking and persistent forms: a _start or _init function of C, with its arguments between
  // the team and the handle.
  //   auto started = team.start<heddle_broadcast_start>(data, bytes, root);
  //   auto steps = team.make<heddle_allreduce_init>(send, receive, count, &how, nullptr);
  template <auto function, class... Arguments>
  [[nodiscard]] Started start(Arguments... arguments) const {
    heddle_collective collective{};
    check(function(handle_, arguments..., &collective));
    return Started(collective);
  }
  template <auto function, class... Arguments>
  [[nodiscard]] Persistent make(Arguments... arguments) const {
    heddle_collective collective{};
    check(function(handle_, arguments..., &collective));
    return Persistent(collective);
  }
};

}  // namespace heddle

#endif  // HEDDLE_COLLECTIVES_HPP
