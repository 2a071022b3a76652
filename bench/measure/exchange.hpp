// Programs that exchange with all neighbours in rounds: halos, and the aggregation of OpenSHMEM
// programs. In the latter, each process puts a buffer of some KiB to each other process, and
// signals it by a flag or by an atomic count. The processes wait for these words, or all meet in a
// barrier. Then they read the received data.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "measure/one_sided.hpp"

namespace heddle::bench::measure {

// ---- halo ---------------------------------------------------------------------------------------
// Each thread has a face to the left and one to the right, both of the other process: two processes
// in a ring. A step sends both and waits for both. There are two copies of each face, by the step's
// parity: a process at step s + 2 has received the other's step s + 1, which was sent after s was
// used.

inline constexpr std::uint64_t kFaces = 2;
inline constexpr std::uint64_t kFaceRoom = kDataBytes / (kMostThreads * kFaces * 2);

inline std::uint64_t face_at(std::uint32_t lane, std::uint64_t face, std::uint64_t step) {
  return kDataAt + ((lane * kFaces + face) * 2 + step % 2) * kFaceRoom;
}
inline std::uint64_t face_word(std::uint32_t lane, std::uint64_t face) {
  return word_at(16 + lane * kFaces + face);
}

// A thread's side of the exchange. `steps` counts all there have been, in both processes alike.
template <class L>
class Halo {
 public:
  Halo(const Bench& bench, L& library, std::uint32_t lane)
      : library_(library), lane_(lane), peer_(bench.peer()), out_(2 * kFaces * kFaceRoom, bench.options()) {}

  void prepare(std::uint64_t bytes, std::byte with) {
    wrong_ = false;
    for (std::uint64_t i = 0; i < 2 * kFaces; ++i) {
      fill(out_.data() + i * kFaceRoom, bytes, with);
      fill(library_.own(face_at(lane_, i / 2, i % 2)), bytes, std::byte{0});
    }
  }
  // The step's number travels in the first word of each face, so that each step's data are checked.
  void step(std::uint64_t bytes) {
    ++steps_;
    for (std::uint64_t face = 0; face < kFaces; ++face) std::memcpy(out(face), &steps_, sizeof steps_);
    if constexpr (Signals<L>) {
      for (std::uint64_t face = 0; face < kFaces; ++face) {
        library_.put_signal(lane_, peer_, face_at(lane_, 1 - face, steps_), out(face), bytes,
                            face_word(lane_, 1 - face), steps_);
      }
      for (std::uint64_t face = 0; face < kFaces; ++face) library_.wait_signal(lane_, face_word(lane_, face), steps_);
    } else {
      typename L::Request requests[2 * kFaces];
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
  // For the last step: all received data after the number.
  [[nodiscard]] bool right(std::uint64_t bytes, std::byte with) const {
    bool good = !wrong_;
    for (std::uint64_t face = 0; face < kFaces; ++face) {
      good = good && is_filled(in(face) + sizeof steps_, bytes - sizeof steps_, with);
    }
    return good;
  }

 private:
  [[nodiscard]] std::byte* out(std::uint64_t face) const { return out_.data() + (face * 2 + steps_ % 2) * kFaceRoom; }
  [[nodiscard]] std::byte* in(std::uint64_t face) const { return library_.own(face_at(lane_, face, steps_)); }

  L& library_;
  std::uint32_t lane_;
  std::uint32_t peer_;
  std::uint64_t steps_ = 0;
  Buffer out_;
  bool wrong_ = false;
};

template <class L>
void halo(Bench& bench, L& library) {
  if (!bench.wants_program("halo")) return;
  clear_words(library, 16, kMostThreads * kFaces);
  std::vector<std::unique_ptr<Halo<L>>> halos;
  for (std::uint32_t lane = 0; lane < kMostThreads; ++lane) {
    halos.push_back(std::make_unique<Halo<L>>(bench, library, lane));
  }
  for (const std::uint64_t bytes : bench.program_sizes({1024, 65536})) {
    if (bytes > kFaceRoom) {
      bench.leave_out("halo", bytes, "at most " + std::to_string(kFaceRoom));
      continue;
    }
    for (const std::uint32_t threads : bench.program_threads({1, 2, 4, 8})) {
      bench.measure(bench.program("halo", "latency", bytes, 1, threads),
                    {[&](std::uint64_t run) {
                       for (std::uint32_t i = 0; i < threads; ++i) {
                         halos[i]->prepare(bytes, pattern(bench.rank(), i, run));
                       }
                     },
                     [&](std::uint32_t lane, std::uint64_t n) {
                       for (std::uint64_t i = 0; i < n; ++i) halos[lane]->step(bytes);
                     },
                     [&](std::uint64_t run) {
                       return of_all(threads, [&](std::uint32_t lane) {
                         return halos[lane]->right(bytes, pattern(bench.peer(), lane, run));
                       });
                     }});
    }
  }
}

// ---- buffers for all ----------------------------------------------------------------------------

// How a process learns that all buffers of a round have come: it waits for a flag of each process
// that puts; or it waits for one atomic count of bytes; or it reads the count after a barrier.
enum class Told { flag, count, barrier };

// A process's side. There are two places for the buffer of each process, by the round's parity. A
// process that puts in round r + 2 has received from all others their buffers of round r + 1, which
// they put after they had read round r. For the same reason there are two counts.
template <class L>
class Exchanging {
 public:
  Exchanging(const Bench& bench, L& library, Told told)
      : library_(library),
        rank_(bench.rank()),
        size_(bench.size()),
        told_(told),
        out_(kMostExchanged, bench.options()) {
    clear_words(library, kFirstWord, kExchangeWords);
  }

  void prepare(std::uint64_t bytes, std::byte with, std::uint64_t run) {
    right_ = true;
    run_ = run;
    fill(out_.data(), bytes, with);
  }
  void round(std::uint64_t bytes) {
    ++rounds_;
    const std::uint64_t parity = rounds_ % 2;
    bytes_[parity] += bytes * (size_ - 1);
    std::memcpy(out_.data(), &rounds_, sizeof rounds_);
    // Each begins with another, that not all are at one.
    for (std::uint32_t i = 1; i < size_; ++i) give((rank_ + i) % size_, parity, bytes);
    await(parity);
    for (std::uint32_t i = 1; i < size_; ++i) read((rank_ + i) % size_, parity, bytes);
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  static constexpr std::uint64_t kMostExchanged = 32768;
  static constexpr std::uint64_t kFirstWord = 512;
  static constexpr std::uint64_t kExchangeWords = kManyProcesses + 2;
  static_assert(2 * kManyProcesses * kMostExchanged <= kDataBytes && kFirstWord + kExchangeWords <= kWords);

  static std::uint64_t place_of(std::uint32_t from, std::uint64_t parity) {
    return kDataAt + (from * 2 + parity) * kMostExchanged;
  }
  static std::uint64_t flag_of(std::uint32_t from) { return word_at(kFirstWord + from); }
  static std::uint64_t count_of(std::uint64_t parity) { return word_at(kFirstWord + kManyProcesses + parity); }

  void give(std::uint32_t to, std::uint64_t parity, std::uint64_t bytes) {
    library_.put_now(0, to, place_of(rank_, parity), out_.data(), bytes);
    if (told_ != Told::barrier) library_.fence(0);
    if (told_ == Told::flag) {
      library_.set_word(0, to, flag_of(rank_), rounds_);
    } else {
      library_.add_word(0, to, count_of(parity), bytes);
    }
  }
  void await(std::uint64_t parity) {
    switch (told_) {
      case Told::flag:
        for (std::uint32_t i = 1; i < size_; ++i) library_.wait_signal(0, flag_of((rank_ + i) % size_), rounds_);
        break;
      case Told::count:
        library_.wait_signal(0, count_of(parity), bytes_[parity]);
        break;
      case Told::barrier: {
        library_.meet_complete();
        std::uint64_t came = 0;
        std::memcpy(&came, library_.own(count_of(parity)), sizeof came);
        right_ = right_ && came == bytes_[parity];
        break;
      }
    }
  }
  // Reads every word of it, like a program that sorts the buffer's contents by their destination.
  void read(std::uint32_t from, std::uint64_t parity, std::uint64_t bytes) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(library_.own(place_of(from, parity)));
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < bytes / sizeof *words; ++i) sum += words[i];
    std::uint64_t one = 0;
    std::memset(&one, static_cast<int>(pattern(from, 0, run_)), sizeof one);
    right_ = right_ && sum == rounds_ + (bytes / sizeof *words - 1) * one;
  }

  L& library_;
  std::uint32_t rank_;
  std::uint32_t size_;
  Told told_;
  Buffer out_;
  std::uint64_t rounds_ = 0;
  std::uint64_t bytes_[2] = {};  // that have come in all rounds of this parity
  std::uint64_t run_ = 0;
  bool right_ = true;
};

template <Counts L>
void exchanges(Bench& bench, L& library) {
  if (!bench.wants_program("exchange") || bench.identity().is_variant) return;
  constexpr std::pair<Told, const char*> kWays[] = {
      {Told::flag, "exchange_flag"}, {Told::count, "exchange_count"}, {Told::barrier, "exchange_barrier"}};
  for (const auto& [told, op] : kWays) {
    Exchanging<L> mine(bench, library, told);
    for (const std::uint64_t bytes : bench.program_sizes({1024, 4096, 32768})) {
      if (bytes < 8 || bytes > 32768 || bytes % 8 != 0) {
        bench.leave_out("exchange", bytes, "multiples of 8 up to 32768");
        continue;
      }
      bench.measure(bench.program(op, "latency", bytes, 1),
                    {[&](std::uint64_t run) { mine.prepare(bytes, pattern(bench.rank(), 0, run), run); },
                     [&](std::uint32_t, std::uint64_t n) {
                       for (std::uint64_t i = 0; i < n; ++i) mine.round(bytes);
                     },
                     [&](std::uint64_t) { return mine.right(); }});
    }
  }
}

}  // namespace heddle::bench::measure
