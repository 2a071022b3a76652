// This transport's part of a context: the queue for notes, the events of the adapters, and the
// Device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "transport/network/device.hpp"
#include "transport/network/directory.hpp"
#include "transport/network/losses.hpp"
#include "transport/verbs/adapter.hpp"
#include "transport/verbs/memory.hpp"

namespace heddle::transport::verbs {

class Device;

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
  [[nodiscard]] const PortAddress& address() const { return address_; }
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
    PortAddress address;
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
  void take_frame(const NoteFrame& frame, const std::byte* data);
  void send_again();

  Device& device_;
  PortAddress address_;
  CompletionChannel channel_;
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

class Device;

// The events that adapters report, besides completions: a port that goes down, a queue with an
// error, an adapter that has failed. The helper reads them when they come.
class Events {
 public:
  explicit Events(Device& device) : device_(device) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // `channel`: another descriptor that is watched with those of the adapters. SYSTEM.
  base::Status open(int channel);
  // Readable while an adapter has told something, or the channel has.
  [[nodiscard]] int descriptor() const { return watched_.get(); }
  // Reads the events that have come. With the device's mutex.
  void read();

 private:
  base::Status watch(int descriptor);
  void read(Adapter& adapter);
  void fail(Adapter& adapter, const char* why);
  void take(Adapter& adapter, const ibv_async_event& event);
  void take_port(const Adapter& adapter, ibv_event_type type);
  void fail_queue(const Adapter& adapter, const void* worker, const char* what);

  Device& device_;
  base::Fd watched_;
};

class Port;

// This transport's part of a context: the adapters, the queue for notes, the regions; the rest is
// network::Device's.
class Device final : public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;

  // The first adapter, through which the notes go.
  [[nodiscard]] const Adapter& adapter() const { return *adapters_.front(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Adapter>>& adapters() const { return adapters_; }
  // The index of the worker's adapter among them.
  [[nodiscard]] std::uint32_t adapter_index(std::uint32_t worker) const {
    return worker % static_cast<std::uint32_t>(adapters_.size());
  }
  // True: this adapter has failed, and another one works.
  [[nodiscard]] bool goes_on_without(const Adapter& adapter) const;
  [[nodiscard]] const char* link() const { return adapter().by_gid() ? "RoCE" : "InfiniBand"; }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] Events& events() { return events_; }
  [[nodiscard]] std::uint64_t now_ns() const { return environment().clock->now_ns(); }
  [[nodiscard]] std::string describe() const;

  // Between these calls the port gets the handshakes for its worker.
  void enter(Port& port);
  void leave(const Port& port);
  // With the mutex: a handshake for a worker. False: there is no such worker.
  bool deliver(std::uint32_t rank, std::uint32_t worker, const Handshake& hello);
  // With the mutex: the adapter has failed, or a queue of the worker; null: the queue for notes.
  // All that is under way there fails.
  void note_failed(Adapter& adapter);
  void note_failed_queue(const void* port);

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Adapter::Opened opened);
  base::Status set_up();

  std::vector<std::unique_ptr<Adapter>> adapters_;
  const std::string left_out_;
  DeviceQueue queue_;
  Events events_;
  Regions regions_;
  std::vector<Port*> ports_;  // by number of the worker; guarded by the mutex
};

}  // namespace heddle::transport::verbs
