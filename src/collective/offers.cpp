#include "collective/offers.hpp"

#include <cstring>

#include "collective/assembly.hpp"

namespace heddle::collective {

std::optional<TeamPiece> TeamPiece::take(Arena& arena, std::uint32_t members) {
  const auto offset = arena.take(Assembly::bytes(members));
  if (!offset) return std::nullopt;
  Assembly::prepare(arena, *offset, members);
  return TeamPiece(arena, *offset);
}

void Offers::add(TeamPiece piece, TeamRecord* record) {
  const std::lock_guard lock(mutex_);
  record->number = ++last_;
  record->piece = piece.offset();
  open_.emplace(record->number, Offer{*record, std::move(piece)});
}

std::optional<TeamPiece> Offers::take(const TeamRecord& record) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(record.number);
  if (found == open_.end() || std::memcmp(&found->second.record, &record, sizeof record) != 0) return std::nullopt;
  std::optional<TeamPiece> piece(std::move(found->second.piece));
  open_.erase(found);
  return piece;
}

}  // namespace heddle::collective
