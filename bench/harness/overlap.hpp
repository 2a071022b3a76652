// As for PIOMan: a nonblocking send, a computation, the wait; and a nonblocking receive, a
// computation, the wait. Does the message move while the program computes? Heddle and its peers do
// the same here.
//
// One iteration begins when both are ready and ends when the sender has the receiver's answer, so
// both have waited. The parts alone are measured as well: `communication` without computing,
// `compute` without a message.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "harness/computation.hpp"
#include "harness/session.hpp"

namespace heddle::bench::harness {

inline const std::vector<std::uint64_t> kOverlapSizes = {64, 4096, 16384, 32768, 262144, 1U << 20};
inline std::uint64_t overlap_compute_ns(std::uint64_t size) {
  return size <= 16384 ? 20'000 : 100'000;
}

struct OverlapCase {
  const char* op;
  bool message;
  bool sender;  // computes
  bool receiver;
};
inline constexpr std::array<OverlapCase, 5> kOverlapCases = {{{"communication", true, false, false},
                                                              {"compute", false, true, true},
                                                              {"sender", true, true, false},
                                                              {"receiver", true, false, true},
                                                              {"both", true, true, true}}};

// Endpoint: begin_send(data, size), finish_send(), begin_receive(data, size), finish_receive(), one
// of each at a time; answer() and await_answer(), a message of 8 bytes back; progress().
template <class Endpoint>
class Overlap {
 public:
  Overlap(Session& session, Endpoint& endpoint, std::uint64_t size)
      : session_(session), endpoint_(endpoint), buffer_(size) {}

  Run operator()(const OverlapCase& what, std::uint64_t n) {
    bool right = true;
    const std::uint64_t begin = now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (session_.rank() == 0) {
        send(what);
      } else {
        right = receive(what) && right;
      }
    }
    const auto elapsed = static_cast<double>(now_ns() - begin);
    if (session_.rank() == 1) session_.channel().flag(1).store(right ? 1 : 0, std::memory_order_relaxed);
    session_.channel().barrier_while([&] { endpoint_.progress(); });
    return Run{elapsed, session_.channel().flag(1).load(std::memory_order_relaxed) == 1};
  }

 private:
  void send(const OverlapCase& what) {
    if (what.message) {
      ++number_;
      std::memcpy(buffer_.data() + buffer_.size() - sizeof number_, &number_, sizeof number_);
      endpoint_.begin_send(buffer_.data(), buffer_.size());
    }
    if (what.sender) computation_.run(overlap_compute_ns(buffer_.size()));
    if (!what.message) return;
    endpoint_.finish_send();
    endpoint_.await_answer();
  }
  bool receive(const OverlapCase& what) {
    if (what.message) endpoint_.begin_receive(buffer_.data(), buffer_.size());
    if (what.receiver) computation_.run(overlap_compute_ns(buffer_.size()));
    if (!what.message) return true;
    endpoint_.finish_receive();
    ++number_;
    const bool right = std::memcmp(buffer_.data() + buffer_.size() - sizeof number_, &number_, sizeof number_) == 0;
    endpoint_.answer();
    return right;
  }

  Session& session_;
  Endpoint& endpoint_;
  std::vector<std::byte> buffer_;
  Computation computation_;
  std::uint64_t number_ = 0;  // of the message: its last bytes
};

// `figure_of(op, size)`: the participant's own figure of this name.
template <class Endpoint, class FigureOf>
void measure_overlap(Session& session, Endpoint& endpoint, FigureOf&& figure_of) {
  for (const std::uint64_t size : sizes_or(session.options(), kOverlapSizes)) {
    session.cores().pin_sharing(session.rank(), 0);
    Overlap<Endpoint> overlap(session, endpoint, size);
    for (const OverlapCase& one : kOverlapCases) {
      session.measure(figure_of(one.op, size), [&](std::uint64_t n) { return overlap(one, n); });
    }
  }
}

}  // namespace heddle::bench::harness
