// Barrier gates: parts of the network's interface that pass a few words on when all that they wait
// for has come, and combine them on the way, so that a barrier or a small reduction needs no
// processor between its start and its end. Optional: Transport::gates(). The model is that of
// Tofu's barrier gates.
//
// A GateChain is one rank's gates in a network of gates of several ranks. Gate 0 is where an
// operation begins, with what this rank gives, and where it ends, with the result; the others
// relay. A gate has up to two inputs and two outputs, one of each to a gate of this chain and one
// to a gate of another rank. When a signal has come to every input that it has, the gate combines
// them and sends the result out. How gates are connected, so that this is a barrier and a
// reduction, is the caller's matter.
//
// One operation at a time in one network: each rank begins the next one when it has the result of
// the one before. All ranks begin the same one. Nobody begins before the chains of all ranks are
// bound. Peers that have died are not noticed: who waits has to look for that itself.
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

// What one peer needs to connect its gates with this rank's: one of its gates sends to one of
// these, and the other way round. Carried as bytes; hostile.
struct GateKey {
  std::array<std::byte, kGateKeyBytes> bytes{};
};

// To and from where a gate of a chain is connected.
struct GateWires {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t from_local = kNone;  // gates of the same chain
  std::uint32_t to_local = kNone;
  // the gate that the peer's key names for what it sends; null: none
  const GateKey* from_peer = nullptr;
  const GateKey* to_peer = nullptr;  // … for what it gets
};

// Of words of 64 bits, without signs; a sum wraps around.
enum class GateOperator : std::uint8_t { barrier, band, bor, bxor, max, sum };

class GateChain {
 public:
  GateChain() = default;
  GateChain(const GateChain&) = delete;
  GateChain& operator=(const GateChain&) = delete;
  // The last operation has ended well, and no peer will begin another; or nothing was ever started;
  // or leave() was called.
  virtual ~GateChain() = default;

  // All chains of a network have the same.
  [[nodiscard]] virtual std::uint32_t lane() const = 0;
  // For one peer: `sends` is the gate of this chain that sends to that peer, `gets` the one that
  // gets from it. kNone: there is none.
  [[nodiscard]] virtual GateKey key(std::uint32_t sends, std::uint32_t gets) const = 0;

  // Once: the wires of all its gates. PROTOCOL: a key is none. RANGE: there is no such gate; the
  // number of gates is another.
  [[nodiscard]] virtual base::Status bind(std::span<const GateWires> wires) = 0;

  // Begins an operation with Limits::words words at most, none for a barrier; they are read here.
  // Waits for no peer. STATE: one is under way. An error of the interface, which all further
  // operations give as well.
  [[nodiscard]] virtual base::Status start(GateOperator op, std::span<const std::uint64_t> words) = 0;
  // DONE: it has ended, and the result is in `words`, as many as were given. AGAIN. ARGUMENT: ranks
  // have begun different operations. Else, and with ARGUMENT, no further operation may be started.
  [[nodiscard]] virtual base::Status poll(std::span<std::uint64_t> words) = 0;

  // It ends although an operation has not: gates may still send and get, so nobody else has them to
  // the end of the process.
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

  // `gates` of them, one at least, connected with nothing. Chains of one network are opened with
  // the same `lane`, any number: the interface has several sets of gates, and takes the one that
  // the number gives.
  // NO_MEMORY: there are not so many left in that set, or the process has as many as it may.
  [[nodiscard]] virtual base::Result<std::unique_ptr<GateChain>> open(std::uint32_t gates, std::uint32_t lane) = 0;
};

}  // namespace heddle::transport
