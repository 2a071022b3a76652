// Strict mode: packets that arrive are delayed and handled in another order, as the hardware may do
// it.
//
// Packets of messages with STRONG_ORDER keep their order among those of the same pair of VCQs and
// the same path, and only among those. All others are shuffled, and whole messages are delayed at
// random. This class also detects the last handled piece of a message, so that notices and credits
// come after all pieces.
//
// Time is counted in ticks, one for each round of the engine: the same seed and the same rounds
// give the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "tofu/emulator/packet.hpp"

namespace tofu_emulator {

class Delivery {
 public:
  struct Parcel {
    PacketHead head;
    std::vector<std::byte> data;
    PacketKind kind = PacketKind::put;
    std::uint32_t source = 0;
    std::uint32_t served = 0;   // get: see Engine::Arrival
    std::uint64_t stream = 0;   // 0: unordered
    std::uint64_t turn = 0;     // in its stream
    std::uint64_t message = 0;  // key
    std::uint64_t due = 0;      // tick
    std::uint64_t arrived = 0;  // its number among all packets that came to this process
  };
  // What is known about the message's other pieces when one is handled.
  struct Pieces {
    bool last = true;
    Refusal refused = Refusal::none;
  };

  explicit Delivery(std::uint64_t seed) : random_(seed) {}

  void reseed(std::uint64_t seed) { random_ = heddle::base::Random(seed); }
  [[nodiscard]] bool full() const { return parcels_.size() >= kMost; }
  [[nodiscard]] bool empty() const { return parcels_.empty(); }
  void add(PacketKind kind, const PacketHead& head, const std::byte* data, std::uint32_t source, std::uint64_t arrived);

  // One tick: calls handle(parcel, pieces) for all parcels that are due, in a random order where
  // order is free. If handle returns false, the parcel is offered again later. Returns the number
  // of handled parcels.
  template <class Handle>
  std::size_t tick(Handle&& handle) {
    ++now_;
    std::size_t done = 0;
    const bool hurry = full();
    for (std::size_t left = parcels_.size(), at = left == 0 ? 0 : random_.below(left); left != 0; --left) {
      if (at >= parcels_.size()) at = 0;
      Parcel& parcel = parcels_[at];
      if (!may_go(parcel, hurry && done == 0) || !handle(parcel, pieces_of(parcel))) {
        ++at;
        continue;
      }
      gone(parcel);
      // the parcel moved into this place may be due too
      parcel = std::move(parcels_.back());
      parcels_.pop_back();
      ++done;
    }
    return done;
  }

  // Calls handle(parcel, pieces) at once for all parcels of a process that arrived before `before`:
  // later packets must not overtake them. handle() must take them all.
  template <class Handle>
  void release(std::uint32_t source, std::uint64_t before, Handle&& handle) {
    for (bool more = true; more;) {
      more = false;
      for (std::size_t at = 0; at < parcels_.size();) {
        Parcel& parcel = parcels_[at];
        if (parcel.source != source || parcel.arrived > before || !may_go(parcel, true)) {
          ++at;
          continue;
        }
        (void)handle(parcel, pieces_of(parcel));
        gone(parcel);
        parcel = std::move(parcels_.back());
        parcels_.pop_back();
        more = true;
      }
    }
  }

  // Notes that a piece of this parcel's message was refused.
  void refused(const Parcel& parcel, Refusal refusal) { messages_[parcel.message].refused = refusal; }

 private:
  static constexpr std::size_t kMost = 256;
  struct MessageState {
    std::uint32_t handled = 0;  // bytes
    Refusal refused = Refusal::none;
    std::uint64_t held_until = 0;
  };
  struct Stream {
    std::uint64_t arrived = 0;
    std::uint64_t handled = 0;
    std::uint64_t held_until = 0;
  };

  [[nodiscard]] bool may_go(const Parcel& parcel, bool hurry);
  [[nodiscard]] Pieces pieces_of(const Parcel& parcel);
  void gone(const Parcel& parcel);
  [[nodiscard]] std::uint64_t hold_back();

  heddle::base::Random random_;
  std::uint64_t now_ = 0;
  std::vector<Parcel> parcels_;
  // messages of which some pieces, not all, have arrived
  std::unordered_map<std::uint64_t, MessageState> messages_;
  std::unordered_map<std::uint64_t, Stream> streams_;
};

}  // namespace tofu_emulator
