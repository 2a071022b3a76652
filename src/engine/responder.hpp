// Executes put, get and atomic requests that arrive as messages: on transports that lack these
// operations, the owner of the memory executes them.
//
// Answers that the transport does not take now wait here. Their number is bounded by the requests
// that peers have in flight (a worker of a peer has at most HEDDLE_WORKER_OPERATIONS open
// requests). One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/regions.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Responder {
 public:
  Responder(transport::TransportWorker& transport, const memory::RegionTable& regions, std::uint32_t max_message)
      : transport_(transport), regions_(regions), max_data_(max_message - sizeof(wire::ReplyHeader)) {
    waiting_.reserve(kRoom);
  }

  // Executes the request and answers it, now or in a later flush(). Checks range and alignment;
  // answers a bad request with an error.
  void serve(heddle_peer source, const wire::Request& request);

  // Answers a request whose outcome was decided elsewhere.
  void answer(heddle_peer source, std::uint64_t token, base::Status status);

  // Tells a sender of USER messages how many of the bytes that it sent have been handled. False:
  // memory is exhausted and the sender was not told.
  [[nodiscard]] bool grant(heddle_peer source, std::uint64_t bytes);

  // Sends the waiting answers. Returns how many left.
  std::size_t flush();

  void forget(std::uint32_t rank);
  [[nodiscard]] bool idle() const { return waiting_.empty(); }
  // Answers lost because memory was exhausted: they could neither be sent nor kept. Their requests
  // stay open at the peer until this worker is closed.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  struct Answer {
    heddle_peer peer;
    wire::ReplyHeader head;
    std::span<const std::byte> data;  // of a get; lies in the region, sent in portions
    // region of a get; it may be released while the answer waits
    std::uint64_t region = 0;
    std::uint32_t immediate = wire::immediate_of(wire::Kind::reply);
  };
  static constexpr std::size_t kRoom = 64;  // answers that can wait without allocating
  bool send(Answer& answer) noexcept;       // false: not taken, or not completely
  bool send_waiting(Answer& answer) noexcept;
  bool dispatch(Answer answer) noexcept;  // false: it could be neither sent nor kept
  void keep_or_lose(const Answer& answer) noexcept;

  transport::TransportWorker& transport_;
  const memory::RegionTable& regions_;
  std::size_t max_data_;
  std::vector<Answer> waiting_;
  std::uint64_t lost_ = 0;
};

}  // namespace heddle::engine
