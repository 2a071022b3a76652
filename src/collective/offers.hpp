// A rank's part of a team that is being made: a piece of its arena, for the team's assembly. Also
// the offers of this rank that no team has used yet (heddle_team_offer).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "collective/arena.hpp"
#include "heddle/collectives.h"

namespace heddle::collective {

// Prepared, so that other members may be told of it and may use it at once. Given back with this
// object, unless it is kept.
class TeamPiece {
 public:
  // Empty: the arena has no room.
  static std::optional<TeamPiece> take(Arena& arena, std::uint32_t members);
  TeamPiece(TeamPiece&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), offset_(other.offset_) {}
  TeamPiece& operator=(TeamPiece&&) = delete;
  ~TeamPiece() {
    if (arena_ != nullptr) arena_->give_back(offset_);
  }
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  // Keeps the piece: from now on a team owns it, or a peer may use it, and then it stays until the
  // context ends.
  void keep() { arena_ = nullptr; }

 private:
  TeamPiece(Arena& arena, std::uint64_t offset) : arena_(&arena), offset_(offset) {}
  Arena* arena_;
  std::uint64_t offset_;
};

// The record that the program carries from one member to the others, as heddle_team_offer writes
// it. All ranks of a job run the same library on the same kind of machine.
struct TeamRecord {
  static constexpr std::uint64_t kMagic = 0x3172'6D65'7464'6568ULL;  // "hedtemr1" in a dump

  std::uint64_t magic = kMagic;
  std::uint64_t job = 0;              // digest of its secret
  std::uint64_t number = 0;           // of the offer, at its rank
  std::uint64_t piece = 0;            // offset in the arena of its rank
  std::uint32_t rank = 0;             // in the job
  std::uint32_t size = 0;             // of the team
  std::int32_t status = HEDDLE_DONE;  // why the rank has nothing to offer
  std::uint32_t unused[5] = {};       // zero
};
static_assert(sizeof(TeamRecord) == HEDDLE_TEAM_RECORD_BYTES && std::is_trivially_copyable_v<TeamRecord>);

// Any thread.
class Offers {
 public:
  // Makes the piece an offer. The record names the offer.
  void add(TeamPiece piece, TeamRecord* record);
  // Takes the offer, which ends it. Empty: this record names no offer, or one that has ended.
  std::optional<TeamPiece> take(const TeamRecord& record);

 private:
  struct Offer {
    TeamRecord record;
    TeamPiece piece;
  };
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Offer> open_;  // by number
};

}  // namespace heddle::collective
