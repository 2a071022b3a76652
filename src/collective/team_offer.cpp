// Teams that a rank makes alone, from the members' offers: the program has carried the members'
// records to all of them.
#include <algorithm>
#include <vector>

#include "collective/team.hpp"
#include "wire/packet.hpp"

namespace heddle::collective {
namespace {

base::Result<Commons*> known_commons(engine::Context& context) {
  auto* commons = static_cast<Commons*>(context.attachment());
  if (commons != nullptr && commons->knows()) return commons;
  return base::fail(
      HEDDLE_ERR_STATE,
      "the ranks' memory for collectives is not known yet: call heddle_team_world in this context before");
}

base::Status no_offer(const TeamRecord& record) {
  return base::fail(HEDDLE_ERR_ARGUMENT,
                    "the record of rank %u names no offer of this context: heddle_team_offer has not written it, or it "
                    "was used or withdrawn",
                    record.rank);
}

// `i`: the number of the member.
base::Status judge(const TeamRecord& record, std::uint32_t i, std::uint32_t rank, const Commons& commons,
                   std::uint32_t size) {
  const bool written = record.magic == TeamRecord::kMagic && wire::status_known(record.status) &&
                       std::ranges::all_of(record.unused, [](std::uint32_t word) { return word == 0; });
  if (!written) {
    return base::fail(HEDDLE_ERR_PROTOCOL,
                      "record %u is none that heddle_team_offer writes: pass the %d bytes of each member as it has "
                      "written them",
                      i, HEDDLE_TEAM_RECORD_BYTES);
  }
  if (record.job != commons.context().digest())
    return base::fail(HEDDLE_ERR_PROTOCOL, "record %u is of another job", i);
  if (record.rank != rank) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "record %u is of rank %u, not of rank %u: records come in the order of ranks", i, record.rank,
                      rank);
  }
  if (record.size != size) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "rank %u has made its offer to a team of %u members, this one has %u", rank,
                      record.size, size);
  }
  const auto status = static_cast<base::Status>(record.status);
  if (status == HEDDLE_ERR_NO_MEMORY) {
    return base::fail(status, "rank %u has no room for one more team: free teams, or raise HEDDLE_COLLECTIVE_BYTES",
                      rank);
  }
  if (status != HEDDLE_DONE)
    return base::fail(status, "rank %u could make no offer to the team (%s)", rank, heddle_status_name(status));
  return HEDDLE_DONE;
}

// Checks that these ranks exist and that each is named once.
base::Status judge_ranks(std::span<const std::uint32_t> ranks, const engine::Context& context) {
  std::vector<bool> named(context.size());
  for (const std::uint32_t rank : ranks) {
    if (rank >= context.size())
      return base::fail(HEDDLE_ERR_RANK, "rank %u: the job has ranks 0-%u", rank, context.size() - 1);
    if (named[rank]) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "rank %u is named twice; a member has one place in a team", rank);
    }
    named[rank] = true;
  }
  return HEDDLE_DONE;
}

// DONE: the pieces of the members, each in its own arena.
base::Status judge_all(Commons& commons, std::span<const std::uint32_t> ranks, std::span<const TeamRecord> records,
                       std::vector<std::uint64_t>* pieces) {
  if (const base::Status status = judge_ranks(ranks, commons.context()); status != HEDDLE_DONE) return status;
  const auto size = static_cast<std::uint32_t>(ranks.size());
  const std::uint64_t bytes = Assembly::bytes(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    const TeamRecord& record = records[i];
    if (const base::Status status = judge(record, i, ranks[i], commons, size); status != HEDDLE_DONE) return status;
    const auto arena = commons.arena_of(ranks[i]);
    if (!arena) return arena.status();
    const std::uint64_t room = (*arena)->bytes;
    if (record.piece % base::kCacheLine != 0 || record.piece > room || bytes > room - record.piece)
      return base::fail(HEDDLE_ERR_PROTOCOL, "record %u names memory that rank %u does not have", i, ranks[i]);
    pieces->push_back(record.piece);
  }
  return HEDDLE_DONE;
}

}  // namespace

base::Status Team::offer(engine::Context& context, std::uint32_t size, TeamRecord* record) {
  *record = {};
  record->job = context.digest();
  record->rank = context.rank();
  record->size = size;
  record->status = HEDDLE_ERR_NO_MEMORY;  // until there is an offer, whatever happens here
  auto commons = known_commons(context);
  if (!commons) {
    record->status = commons.status();
    return commons.status();
  }
  auto piece = TeamPiece::take((*commons)->arena(), size);
  if (!piece) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "HEDDLE_COLLECTIVE_BYTES has no room for one more team of %u members: free teams, or raise it",
                      size);
  }
  TeamRecord mine = *record;
  mine.status = HEDDLE_DONE;
  (*commons)->offers().add(std::move(*piece), &mine);
  *record = mine;
  return HEDDLE_DONE;
}

base::Status Team::withdraw(engine::Context& context, const TeamRecord& record) {
  // nothing was offered
  if (record.magic == TeamRecord::kMagic && record.status != HEDDLE_DONE) return HEDDLE_DONE;
  auto commons = known_commons(context);
  if (!commons) return commons.status();
  return (*commons)->offers().take(record) ? HEDDLE_DONE : no_offer(record);
}

base::Result<Team*> Team::from_offers(engine::Context& context, std::span<const std::uint32_t> ranks,
                                      std::span<const TeamRecord> records) {
  auto known = known_commons(context);
  if (!known) return known.status();
  Commons& commons = **known;
  const auto size = static_cast<std::uint32_t>(ranks.size());
  const auto member = static_cast<std::uint32_t>(std::ranges::find(ranks, context.rank()) - ranks.begin());
  if (member == size) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "this rank, %u, is not among the %u ranks of the team", context.rank(),
                      size);
  }
  std::vector<std::uint64_t> pieces;
  const base::Status judged = judge_all(commons, ranks, records, &pieces);
  const auto own = std::ranges::find(records, context.rank(), &TeamRecord::rank);
  auto piece = own != records.end() ? commons.offers().take(*own) : std::nullopt;
  if (judged != HEDDLE_DONE) return judged;  // the destructor of `piece` gives it back
  if (!piece) return no_offer(records[member]);
  // Other members may have the team already, and use it: whatever happens here, nobody else may get
  // this memory.
  piece->keep();
  return create(commons, {{ranks.begin(), ranks.end()}, member, std::move(pieces)}, *piece);
}

}  // namespace heddle::collective
