// The part of a transport that the directory uses: notes between the device workers of two ranks.
// All calls are made with the device's mutex.
#pragma once

#include <cstdint>
#include <span>

#include "transport/network/lists.hpp"
#include "transport/network/wire.hpp"

namespace heddle::transport::network {

class Courier {
 public:
  // Checks that the versions of the two ranks' libraries go together, and their providers. VERSION
  // or CONFIG; the message names both.
  [[nodiscard]] virtual base::Status check_card(const CardHead& card, std::uint32_t rank) const = 0;
  // Connects to the device worker of a rank; the rank's card has brought the address. It is called
  // until it does not return AGAIN for that rank. AGAIN: the rank may just have died. NO_MEMORY.
  // Another error: the reason.
  [[nodiscard]] virtual base::Status connect(std::uint32_t rank, std::span<const std::byte> address) = 0;
  // Sends a note, which it takes. AGAIN: not now, the note is still the caller's. PEER_FAILED: the
  // connection is broken, or there is none. It throws std::bad_alloc.
  [[nodiscard]] virtual base::Status send(std::uint32_t rank, Bytes* note) = 0;
  // Progress: notes that arrive are passed to Directory::note(), and connections that break are
  // passed to Directory::broken(). True: something has happened.
  virtual bool progress() = 0;
  // The helper calls it in each of its turns. It looks for events that are too rare to be looked
  // for in each progress().
  virtual void look() {}
  // The library will report the next arrival by the descriptor. False: something is there.
  [[nodiscard]] virtual bool arm() = 0;
  // Notes that the library has not finished.
  [[nodiscard]] virtual bool sending() const = 0;
  // Nothing is sent to the rank any more: its connection is closed. Not within progress().
  virtual void disconnect(std::uint32_t rank) = 0;
  // Connections are being closed. No descriptor reports their end.
  [[nodiscard]] virtual bool closes() const = 0;
  // A note of the transport's own has come, for a worker of this rank (Directory::tell()). False:
  // it is none.
  [[nodiscard]] virtual bool handshake(std::uint32_t rank, std::uint32_t worker, const std::byte* data,
                                       std::uint32_t bytes) {
    static_cast<void>(rank);
    static_cast<void>(worker);
    static_cast<void>(data);
    static_cast<void>(bytes);
    return false;
  }

 protected:
  Courier() = default;
  ~Courier() = default;
  Courier(const Courier&) = default;
  Courier& operator=(const Courier&) = default;
};

// Keys of regions that are asked for because they are longer than a packed region may be. With the
// device's mutex.
class KeyShelf {
 public:
  // The packed key of a region of this rank. Null: there is none.
  [[nodiscard]] virtual const Bytes* packed(std::uint64_t id) const = 0;
  // The answer of `rank`. Null: it has no such region.
  virtual void learn(std::uint32_t rank, std::uint64_t id, const std::byte* key, std::uint32_t bytes) = 0;
  // There was no memory for the answer: it is asked for again.
  virtual void ask_again(std::uint32_t rank, std::uint64_t id) = 0;

 protected:
  KeyShelf() = default;
  ~KeyShelf() = default;
  KeyShelf(const KeyShelf&) = default;
  KeyShelf& operator=(const KeyShelf&) = default;
};

}  // namespace heddle::transport::network
