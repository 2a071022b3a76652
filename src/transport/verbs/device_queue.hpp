// Notes between the devices of two ranks, by datagrams: one queue pair a rank, whatever the size of
// the job.
//
// Datagrams may be lost. A rank sends another one note at a time, and again until it is
// acknowledged; a note that comes twice is taken once.
//
// Invariants, of one direction between two ranks
//   taken (there) <= number (here) <= taken (there) + 1: at most one note is on its way
//   A frame carries the number of the last note that its sender has taken: each acknowledges.
//
// A queue pair that has an error takes no more: it is reset, and set up again. Frames that were
// lost with it are sent again, like all lost frames.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/network/courier.hpp"
#include "transport/network/patience.hpp"
#include "transport/verbs/own_memory.hpp"
#include "transport/verbs/queue.hpp"

namespace heddle::transport::verbs {

class Device;

class DeviceQueue final : public network::Courier {
 public:
  explicit DeviceQueue(Device& device) : device_(device) {}
  ~DeviceQueue() { close(); }
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // SYSTEM, NO_MEMORY.
  base::Status open();
  void close();
  [[nodiscard]] bool is_open() const { return pair_ != nullptr; }
  // The adapter's, with this queue.
  [[nodiscard]] const Address& address() const { return address_; }
  [[nodiscard]] int descriptor() const { return channel_.descriptor(); }

  // It does not work any more, and ranks with a note that is under way are lost.
  void lose();

  // ---- Courier
  [[nodiscard]] base::Status check_card(const network::CardHead& card, std::uint32_t rank) const override;
  [[nodiscard]] base::Status connect(std::uint32_t rank, std::span<const std::byte> address) override;
  [[nodiscard]] base::Status send(std::uint32_t rank, network::Bytes* note) override;
  bool progress() override;
  void look() override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] bool sending() const override { return !unacknowledged_.empty() || state_ == State::broken; }
  void disconnect(std::uint32_t rank) override;
  [[nodiscard]] bool closes() const override { return false; }
  [[nodiscard]] bool handshake(std::uint32_t rank, std::uint32_t worker, const std::byte* data,
                               std::uint32_t bytes) override;

 private:
  struct Rank {
    ibv_ah* route = nullptr;
    Address address;
    bool open = false;
    bool owes = false;           // an acknowledgement, until there is a route
    std::uint32_t number = 0;    // of the last note sent
    std::uint32_t taken = 0;     // of the last note that has come
    network::Bytes note;         // that is not acknowledged; empty: none
    network::Patience patience;  // with its answer, or with the route to it
    std::uint64_t again_at = 0;
    std::uint64_t pause = 0;
  };

  enum class State : std::uint8_t {
    works,
    broken,  // the pair has an error, and is repaired
    lost     // that did not help
  };

  base::Status make_pair();
  int connect_pair();
  void post_all();
  void note_broken(const char* why);
  void repair();
  bool transmit(std::uint32_t rank);
  void post_receive(std::uint64_t number);
  void take(const std::byte* data, std::size_t bytes);
  void take_frame(const Frame& frame, const std::byte* data);
  void send_again();

  Device& device_;
  Address address_;
  Channel channel_;
  CompletionQueue queue_;
  ibv_qp* pair_ = nullptr;
  State state_ = State::works;
  std::uint32_t generation_ = 0;     // of the work requests: how often the pair was reset
  std::uint32_t repairs_ = 0;        // since something went well
  std::uint64_t repair_at_ = 0;      // ns
  OwnMemory memory_;                 // buffers of frames that come, then of frames that leave
  std::vector<std::uint32_t> free_;  // buffers of the latter kind that are not in use
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> unacknowledged_;  // ranks with a note that is not acknowledged
};

}  // namespace heddle::transport::verbs
