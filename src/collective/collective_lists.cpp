// Operations whose members list their blocks: what members tell each other about their lists during
// the set-up.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "collective/collective.hpp"
#include "collective/exchange.hpp"

namespace heddle::collective {
namespace {

// Compares what the member says about the blocks between it and this member with this member's
// lists, and records where blocks go.
base::Status compare(std::uint32_t round, std::uint32_t member, const Record& record, const Request& mine,
                     Exchange* lists) {
  const std::span<Message> given = of_peer(lists->given, member);
  const std::span<Message> taken = of_peer(lists->taken, member);
  const char* what = name_of(mine.operation);
  const std::uint32_t rank = mine.rank;
  if (record.takes != given.size() || record.gives != taken.size()) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "%s: rank %u of the team lists %u blocks to rank %u and %u from it; rank %u lists %zu from rank %u "
        "and %zu to it; list as many on both sides",
        what, member, record.gives, rank, record.takes, rank, taken.size(), member, given.size());
  }
  for (std::size_t i = 0; i < record.listed.size(); ++i) {
    const std::size_t k = round * record.listed.size() + i;
    const Record::Listed& listed = record.listed[i];
    if (k < given.size()) {
      if (listed.taken != given[k].bytes) {
        return base::fail(HEDDLE_ERR_ARGUMENT,
                          "%s: rank %u of the team gives %" PRIu64 " bytes to rank %u, which takes %" PRIu64
                          " bytes from it; give and take blocks of one length",
                          what, rank, given[k].bytes, member, listed.taken);
      }
      given[k].kept = record.keeps != 0 && member != rank;
      given[k].there = listed.at;
    }
    if (k < taken.size()) {
      if (listed.given != taken[k].bytes) {
        return base::fail(HEDDLE_ERR_ARGUMENT,
                          "%s: rank %u of the team gives %" PRIu64 " bytes to rank %u, which takes %" PRIu64
                          " bytes from it; give and take blocks of one length",
                          what, member, listed.given, rank, taken[k].bytes);
      }
      taken[k].slot = record.slot;
    }
  }
  return HEDDLE_DONE;
}

}  // namespace

// Each member decides for itself whether it keeps what arrives; its peers are told.
void Collective::prepare_lists(bool reached) {
  std::uint64_t taken = 0;
  std::size_t most = 0;
  for (const Message& message : lists_.taken) taken += message.bytes;
  lists_.kept = team_.size() > 1 && (!reached || taken <= kKeptBytes);
  for (std::uint32_t member = 0; member < team_.size(); ++member)
    most = std::max({most, of_peer(lists_.given, member).size(), of_peer(lists_.taken, member).size()});
  const std::size_t each = record_.listed.size();
  record_.rounds = static_cast<std::uint32_t>(std::max<std::size_t>((most + each - 1) / each, 1));
  record_.keeps = lists_.kept ? 1 : 0;
}

void Collective::tell(std::uint32_t round, std::span<Record> members) {
  std::ranges::fill(members, record_);
  for (std::uint32_t member = 0; member < members.size(); ++member) runner_->tell(member, &members[member]);
  if (!lists_blocks(call_.operation)) return;
  for (std::uint32_t member = 0; member < members.size(); ++member) {
    Record& record = members[member];
    const std::span<const Message> given = of_peer(std::as_const(lists_.given), member);
    const std::span<const Message> taken = of_peer(std::as_const(lists_.taken), member);
    record.gives = static_cast<std::uint32_t>(given.size());
    record.takes = static_cast<std::uint32_t>(taken.size());
    for (const Message& message : given)
      if (message.bytes > 0) record.slot = message.slot;
    for (std::size_t i = 0; i < record.listed.size(); ++i) {
      const std::size_t k = round * record.listed.size() + i;
      if (k < given.size()) record.listed[i].given = given[k].bytes;
      if (k >= taken.size()) continue;
      record.listed[i].taken = taken[k].bytes;
      record.listed[i].at = lists_.kept && member != team_.rank() ? taken[k].there : taken[k].here;
    }
  }
}

void Collective::heard(std::uint32_t round, std::span<const Record> records) {
  if (!lists_blocks(call_.operation)) return;
  for (std::uint32_t member = 0; member < records.size() && refusal_.status() == HEDDLE_DONE; ++member) {
    const Record& record = records[member];
    // Calls of another kind are judged when all members have told theirs.
    if (record.kind != Record::Kind::operation || record.operation != record_.operation) return;
    if (const base::Status status = compare(round, member, record, request_, &lists_); status != HEDDLE_DONE)
      refusal_.keep(status);
  }
}

}  // namespace heddle::collective
