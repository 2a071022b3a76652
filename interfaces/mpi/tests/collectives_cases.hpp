// Shared parts of the random tests of collectives: decisions that all ranks make alike, memory in
// which every byte is known, calls in three forms.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"

// The same numbers on all ranks, as long as all draw alike.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  int below(int n) { return static_cast<int>((next() >> 33) % static_cast<std::uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// What the program has made, to be freed at its end.
inline std::vector<MPI_Comm> g_comms;  // in an order that all members have
inline std::vector<MPI_Datatype> g_types;
inline std::vector<MPI_Op> g_ops;
inline void free_all() {
  for (MPI_Comm& comm : g_comms)
    if (comm != MPI_COMM_NULL) MUST(MPI_Comm_free(&comm));
  for (MPI_Datatype& type : g_types) MUST(MPI_Type_free(&type));
  for (MPI_Op& op : g_ops) MUST(MPI_Op_free(&op));
}

enum class Form { blocking, nonblocking, persistent };

template <auto kRun, auto kStart, auto kInit, class... Arguments>
void call_in(Form form, MPI_Request* request, Arguments... arguments) {
  if (form == Form::blocking)
    MUST(kRun(arguments...));
  else if (form == Form::nonblocking)
    MUST(kStart(arguments..., request));
  else
    MUST(kInit(arguments..., MPI_INFO_NULL, request));
}

// One collective, made once, run any number of times.
struct Case {
  const char* name = "";
  std::function<void(int run)> fill;
  std::function<void(Form form, MPI_Request* request)> call;
  std::function<void(int run)> check;
};

// A communicator, and what a process is in it.
struct Where {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;    // of the local group
  int remote = 0;  // of the group that data goes to
  bool inter = false;
  int side = 0;  // of an intercommunicator: 0 or 1
};

// A number of ints, laid out somehow.
struct Layout {
  MPI_Datatype type = MPI_INT;
  std::vector<int> places;  // of the ints of an element, in ints
  int extent = 1;           // in ints
  [[nodiscard]] int ints() const { return static_cast<int>(places.size()); }
};

// Memory in which elements of a layout may lie at any (also negative) place, with a margin around.
class Area {
 public:
  Area() : ints_(2 * kMargin, kEmpty) {}
  explicit Area(int ints) : ints_(static_cast<std::size_t>(ints + 2 * kMargin), kEmpty) {}
  [[nodiscard]] int* base() { return ints_.data() + kMargin; }
  void clear() {
    std::fill(ints_.begin(), ints_.end(), kEmpty);
    std::fill(known_.begin(), known_.end(), false);
  }
  // Int number `i` of the data that begins `at` elements after the base.
  int& data(const Layout& layout, int at, int i) {
    const int element = at + i / layout.ints();
    const int place = element * layout.extent + layout.places[static_cast<std::size_t>(i % layout.ints())];
    const std::size_t index = static_cast<std::size_t>(kMargin + place);
    CHECK(index < ints_.size());
    known_.resize(ints_.size());
    known_[index] = true;
    return ints_[index];
  }
  // Nothing but data that was asked for has been written.
  [[nodiscard]] bool rest_is_empty() const {
    for (std::size_t i = 0; i < ints_.size(); ++i)
      if (ints_[i] != kEmpty && (known_.empty() || !known_[i])) return false;
    return true;
  }

 private:
  static constexpr int kEmpty = static_cast<int>(0xDEADBEEF);
  static constexpr int kMargin = 64;
  std::vector<int> ints_;
  std::vector<bool> known_;
};

// An int that `from` sends to `to`, its number i.
inline int word(int seed, int from, int to, int i) {
  std::uint32_t hash = static_cast<std::uint32_t>(seed) * 2654435761U;
  for (const int part : {from, to, i}) hash = (hash ^ static_cast<std::uint32_t>(part)) * 2246822519U + 374761393U;
  return static_cast<int>(hash ^ hash >> 15);
}

std::vector<Layout> make_layouts();
// A random one of the moving collectives, or of the reductions.
Case random_move(Random& random, const Where& where, const std::vector<Layout>& layouts, int seed);
Case random_reduction(Random& random, const Where& where, int seed);
Case random_neighbours(Random& random, const Where& where, const std::vector<Layout>& layouts, int seed);
