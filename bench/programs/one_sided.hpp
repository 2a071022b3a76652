// Programs of puts and gets: there and back by a put with a signal, windows with a flush, and the
// exchange of halos.
#pragma once

#include <cstring>
#include <vector>

#include "programs/bench.hpp"

namespace heddle::bench::programs {

// Before anybody waits for them again.
template <class Library>
void clear_words(Library& library, std::uint64_t first, std::uint64_t count) {
  library.meet();
  std::memset(library.own() + word_at(first), 0, count * kWordBytes);
  library.meet();
}

// A put with a signal there and back; who waits, waits for the word.
template <class Library>
void put_latency(Bench& bench, Library& library) {
  if (!bench.wants("put_latency")) return;
  clear_words(library, 0, 1);
  std::uint64_t turn = 0;
  const Buffer source(kMostBytes, bench.options());
  for (const std::uint64_t bytes : bench.sizes({8, 4096, 65536})) {
    if (library.is_variant() && bytes > 8) break;
    bench.measure(
        library, bench.figure(library, "put_latency", "latency", bytes, 2), 1,
        [&](std::uint64_t run) {
          fill(source.data(), bytes, pattern(bench.rank(), 0, run));
          fill(library.own() + kDataAt, bytes, std::byte{0});
        },
        [&](std::uint32_t lane, std::uint64_t n) {
          for (std::uint64_t i = 0; i < n; ++i) {
            ++turn;
            if (bench.rank() == 1) library.wait_signal(lane, word_at(0), turn);
            library.put_signal(lane, bench.peer(), kDataAt, source.data(), bytes, word_at(0), turn);
            if (bench.rank() == 0) library.wait_signal(lane, word_at(0), turn);
          }
        },
        [&](std::uint64_t run) { return is_filled(library.own() + kDataAt, bytes, pattern(bench.peer(), 0, run)); });
  }
}

// Rank 0 puts or gets a window, flushes, and so on; rank 1 waits in the library's barrier.
template <class Library>
void windows(Bench& bench, Library& library, const char* name, bool put) {
  if (!bench.wants(name)) return;
  const Buffer local(kDataBytes, bench.options());
  const bool origin = bench.rank() == 0;
  for (const std::uint64_t bytes : bench.sizes({8, 4096, 65536})) {
    if (library.is_variant() && bytes > 8) break;
    const std::uint64_t places = std::min(kWindow, kDataBytes / bytes);
    const auto at = [&](std::uint64_t i) { return i % places * bytes; };
    // of who holds the data: put 0, get 1
    std::byte* const from = put ? local.data() : library.own() + kDataAt;
    std::byte* const to = put ? library.own() + kDataAt : local.data();
    bench.measure(
        library,
        bench.by_windows(bench.figure(library, name, "bandwidth", bytes, static_cast<double>(kWindow * bytes)), 1), 1,
        [&](std::uint64_t run) {
          const bool gives = origin == put;
          fill(gives ? from : to, places * bytes, gives ? pattern(0, 0, run) : std::byte{0});
        },
        [&](std::uint32_t lane, std::uint64_t n) {
          for (std::uint64_t i = 0; origin && i < n; ++i) {
            for (std::uint64_t k = 0; k < kWindow; ++k) {
              if (put) {
                library.put(lane, 1, kDataAt + at(k), local.data() + at(k), bytes);
              } else {
                library.get(lane, 1, kDataAt + at(k), local.data() + at(k), bytes);
              }
            }
            library.flush(lane, 1);
          }
        },
        [&](std::uint64_t run) { return origin == put || is_filled(to, places * bytes, pattern(0, 0, run)); });
  }
}

// ---- halo ---------------------------------------------------------------------------------------
// Each thread has a face to the left and one to the right, both of the other process: two processes
// in a ring. A step sends both and waits for both. Faces are kept twice, by the step's parity: who
// is at step s + 2 has had the other's step s + 1, sent after s was used.

inline constexpr std::uint64_t kFaces = 2;
inline constexpr std::uint64_t kFaceRoom = kDataBytes / (kMostThreads * kFaces * 2);

inline std::uint64_t face_at(std::uint32_t lane, std::uint64_t face, std::uint64_t step) {
  return kDataAt + ((lane * kFaces + face) * 2 + step % 2) * kFaceRoom;
}
inline std::uint64_t face_word(std::uint32_t lane, std::uint64_t face) {
  return word_at(16 + lane * kFaces + face);
}

// A thread's side of the exchange. `steps` counts all there have been, in both processes alike.
template <class Library>
class Halo {
 public:
  Halo(const Bench& bench, Library& library, std::uint32_t lane)
      : library_(library), lane_(lane), peer_(bench.peer()), out_(2 * kFaces * kFaceRoom, bench.options()) {}

  void prepare(std::uint64_t bytes, std::byte with) {
    wrong_ = false;
    for (std::uint64_t i = 0; i < 2 * kFaces; ++i) {
      fill(out_.data() + i * kFaceRoom, bytes, with);
      fill(library_.own() + face_at(lane_, i / 2, i % 2), bytes, std::byte{0});
    }
  }
  // The step's number travels in the first word of each face, so that each step's data are checked.
  void step(std::uint64_t bytes) {
    ++steps_;
    for (std::uint64_t face = 0; face < kFaces; ++face) std::memcpy(out(face), &steps_, sizeof steps_);
    if constexpr (Library::kSignals) {
      for (std::uint64_t face = 0; face < kFaces; ++face) {
        library_.put_signal(lane_, peer_, face_at(lane_, 1 - face, steps_), out(face), bytes,
                            face_word(lane_, 1 - face), steps_);
      }
      for (std::uint64_t face = 0; face < kFaces; ++face) library_.wait_signal(lane_, face_word(lane_, face), steps_);
    } else {
      typename Library::Request requests[2 * kFaces];
      for (std::uint64_t face = 0; face < kFaces; ++face) {
        library_.receive(lane_, peer_, 100 + lane_ * kFaces + face, in(face), bytes, requests[face]);
      }
      for (std::uint64_t face = 0; face < kFaces; ++face) {
        library_.send(lane_, peer_, 100 + lane_ * kFaces + (1 - face), out(face), bytes, requests[kFaces + face]);
      }
      library_.wait_all(lane_, requests, 2 * kFaces);
    }
    for (std::uint64_t face = 0; face < kFaces; ++face) {
      std::uint64_t number = 0;
      std::memcpy(&number, in(face), sizeof number);
      wrong_ = wrong_ || number != steps_;
    }
  }
  // Of the last step: all that came, behind the number.
  [[nodiscard]] bool right(std::uint64_t bytes, std::byte with) const {
    bool good = !wrong_;
    for (std::uint64_t face = 0; face < kFaces; ++face) {
      good = good && is_filled(in(face) + sizeof steps_, bytes - sizeof steps_, with);
    }
    return good;
  }

 private:
  [[nodiscard]] std::byte* out(std::uint64_t face) const { return out_.data() + (face * 2 + steps_ % 2) * kFaceRoom; }
  [[nodiscard]] std::byte* in(std::uint64_t face) const { return library_.own() + face_at(lane_, face, steps_); }

  Library& library_;
  std::uint32_t lane_;
  std::uint32_t peer_;
  std::uint64_t steps_ = 0;
  Buffer out_;
  bool wrong_ = false;
};

template <class Library>
void halo(Bench& bench, Library& library) {
  if (!bench.wants("halo")) return;
  clear_words(library, 16, kMostThreads * kFaces);
  std::vector<std::unique_ptr<Halo<Library>>> halos;
  for (std::uint32_t lane = 0; lane < kMostThreads; ++lane) {
    halos.push_back(std::make_unique<Halo<Library>>(bench, library, lane));
  }
  for (const std::uint64_t bytes : bench.sizes({1024, 65536})) {
    if (bytes > kFaceRoom) continue;
    for (const std::uint32_t threads : bench.threads({1, 2, 4, 8})) {
      bench.measure(
          library, bench.figure(library, "halo", "latency", bytes, 1, threads), threads,
          [&](std::uint64_t run) {
            for (std::uint32_t i = 0; i < threads; ++i) halos[i]->prepare(bytes, pattern(bench.rank(), i, run));
          },
          [&](std::uint32_t lane, std::uint64_t n) {
            for (std::uint64_t i = 0; i < n; ++i) halos[lane]->step(bytes);
          },
          [&](std::uint64_t run) {
            for (std::uint32_t i = 0; i < threads; ++i) {
              if (!halos[i]->right(bytes, pattern(bench.peer(), i, run))) return false;
            }
            return true;
          });
    }
  }
}

}  // namespace heddle::bench::programs
