// Barrier gates: parts of the network's interface. A gate waits for its inputs, combines their few
// words and passes the result on, so that a barrier or a small reduction needs no processor between
// its start and its end. Optional: Transport::gates(). The model is that of Tofu's barrier gates.
//
// A GateChain is one rank's gates in a network of gates of several ranks. An operation begins at
// gate 0, with this rank's words, and ends there, with the result; the other gates relay. A gate
// has up to two inputs and two outputs, one of each to a gate of this chain and one to a gate of
// another rank. When a signal has arrived at each of its inputs, the gate combines the signals and
// sends the result to its outputs. The caller decides how gates are connected to make a barrier and
// a reduction.
//
// A network runs one operation at a time: each rank starts the next one when it has the result of
// the previous one. All ranks start the same one. No rank starts before the chains of all ranks are
// bound. A GateChain does not notice that a peer has died: a caller that waits must check that
// itself.
//
// Threads: BarrierGates' functions may be called by any thread; those of a GateChain by one thread
// at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace heddle::transport {

inline constexpr std::size_t kGateKeyBytes = 32;

// The key with which one peer connects its gates with this rank's: one of its gates sends to one of
// these, and the other way round. Carried as bytes; hostile.
struct GateKey {
  std::array<std::byte, kGateKeyBytes> bytes{};
};

// The connections of one gate of a chain.
struct GateWires {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t from_local = kNone;  // gates of the same chain
  std::uint32_t to_local = kNone;
  // key that names the peer's sending gate; null: none
  const GateKey* from_peer = nullptr;
  const GateKey* to_peer = nullptr;  // … its receiving gate
};

// On unsigned words of 64 bits; a sum wraps around.
enum class GateOperator : std::uint8_t { barrier, band, bor, bxor, max, sum };

class GateChain {
 public:
  GateChain() = default;
  GateChain(const GateChain&) = delete;
  GateChain& operator=(const GateChain&) = delete;
  // Only if the last operation has completed well, and no peer will start another; or none was ever
  // started; or leave() was called.
  virtual ~GateChain() = default;

  // The same for all chains of a network.
  [[nodiscard]] virtual std::uint32_t lane() const = 0;
  // For one peer: `sends` is the gate of this chain that sends to that peer, `gets` the one that
  // gets from it. kNone: there is none.
  [[nodiscard]] virtual GateKey key(std::uint32_t sends, std::uint32_t gets) const = 0;

  // Once: the wires of all its gates. PROTOCOL: a key is not valid. RANGE: there is no such gate,
  // or `wires` has another number of gates.
  [[nodiscard]] virtual base::Status bind(std::span<const GateWires> wires) = 0;

  // Starts an operation with Limits::words words at most, none for a barrier; start() reads them.
  // Waits for no peer. STATE: one is under way. Else an error of the interface, with which all
  // further operations fail as well.
  [[nodiscard]] virtual base::Status start(GateOperator op, std::span<const std::uint64_t> words) = 0;
  // DONE: the operation has completed, and the result is in `words`, as many as were given. AGAIN:
  // not yet. ARGUMENT: ranks have started different operations. After ARGUMENT or another error no
  // further operation may be started.
  [[nodiscard]] virtual base::Status poll(std::span<std::uint64_t> words) = 0;

  // Before the destructor, if an operation has not completed: gates may still send and receive, so
  // nobody else gets them until the process ends.
  virtual void leave() = 0;
};

class BarrierGates {
 public:
  BarrierGates() = default;
  BarrierGates(const BarrierGates&) = delete;
  BarrierGates& operator=(const BarrierGates&) = delete;
  virtual ~BarrierGates() = default;  // after all chains

  struct Limits {
    std::uint32_t words = 0;  // of one operation
  };
  [[nodiscard]] virtual Limits limits() const = 0;

  // A chain of `gates` gates, at least one, connected with nothing. Chains of one network are
  // opened with the same `lane`, any number: the interface has several sets of gates, and the
  // number selects one.
  // NO_MEMORY: not enough gates are left in that set, or the process has as many as it may.
  [[nodiscard]] virtual base::Result<std::unique_ptr<GateChain>> open(std::uint32_t gates, std::uint32_t lane) = 0;
};

}  // namespace heddle::transport
