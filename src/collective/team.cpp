#include "collective/team.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/fence.hpp"
#include "collective/blocking.hpp"
#include "collective/collective.hpp"
#include "engine/handles.hpp"
#include "wire/packet.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

namespace {

// The record that every rank announces when it makes a team of the whole job.
struct Announcement {
  PackedRegion arena{};
  std::uint64_t piece = 0;
  std::int32_t status = HEDDLE_DONE;  // an error that keeps the rank from taking part
  std::uint32_t direct = 0;           // this rank can map the others' memory
};

// A round of the assembly that a thread waits for.
class Round final : public Setup {
 public:
  using Part = std::function<base::Status(std::span<const SetupRecord> records)>;
  Round(Team& team, const SetupRecord& mine, Part part) : team_(team), mine_(mine), part_(std::move(part)) {}
  ~Round() override {
    if (!ended()) team_.setups().cancel(*this);
  }
  [[nodiscard]] const SetupRecord& record() const override { return mine_; }
  base::Status assembled(std::span<const SetupRecord> records, bool* doubtful) override;
  void decided(base::Status status) override {
    if (status != HEDDLE_DONE) rejection_.keep(status);
    ended_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] base::Status status() const { return rejection_.report(); }

 private:
  Team& team_;
  const SetupRecord mine_;
  const Part part_;
  Rejection rejection_;
  std::atomic<bool> ended_{false};  // release when the other fields are set, acquire in ended()
};

const char* name_of(SetupRecord::Kind kind) {
  switch (kind) {
    case SetupRecord::Kind::operation:
      return "an operation";
    case SetupRecord::Kind::split:
      return "heddle_team_split";
    case SetupRecord::Kind::subset:
      return "heddle_team_subset or _strided";
    case SetupRecord::Kind::verdict:
      break;
  }
  return "something else";
}

base::Status judge(const SetupRecord& mine, std::span<const SetupRecord> records) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const SetupRecord& other = records[i];
    if (other.kind != mine.kind) {
      return base::fail(
          HEDDLE_ERR_ARGUMENT,
          "rank %zu of the team calls %s, this rank %s: all members make the same calls in the same order", i,
          name_of(other.kind), name_of(mine.kind));
    }
    if (other.status != HEDDLE_DONE) {
      return base::fail(static_cast<base::Status>(other.status),
                        "rank %zu of the team has no room for one more team: free teams, or raise "
                        "HEDDLE_COLLECTIVE_BYTES",
                        i);
    }
    if (other.list != mine.list)
      return base::fail(HEDDLE_ERR_ARGUMENT, "rank %zu of the team names other ranks than this one for the new team",
                        i);
  }
  return HEDDLE_DONE;
}

// A team exists for all its members, or for none.
base::Status Round::assembled(std::span<const SetupRecord> records, bool* doubtful) {
  if (const base::Status status = judge(mine_, records); status != HEDDLE_DONE) return rejection_.keep(status);
  *doubtful = true;
  if (const auto failed = team_.failed_member()) return rejection_.keep(team_.report_failed(*failed));
  const base::Status status = part_(records);
  return status == HEDDLE_DONE ? status : rejection_.keep(status);
}

base::Status judge_announcement(std::size_t rank, const Announcement& theirs, const Announcement& mine) {
  if (theirs.status != HEDDLE_DONE) {
    return base::fail(static_cast<base::Status>(theirs.status),
                      "rank %zu cannot be in a team: it has no room in HEDDLE_COLLECTIVE_BYTES, or no worker left for "
                      "collectives (HEDDLE_MAX_WORKERS); free teams, or raise that",
                      rank);
  }
  if (theirs.direct != mine.direct) {
    return base::fail(
        HEDDLE_ERR_CONFIG,
        "rank %zu %s the memory of others, this rank %s: set HEDDLE_TRANSPORT and HEDDLE_SHM_DIRECT alike on "
        "all ranks",
        rank, theirs.direct != 0 ? "maps" : "does not map", mine.direct != 0 ? "does" : "does not");
  }
  return HEDDLE_DONE;
}

}  // namespace

Team::Team(Commons& commons, std::vector<std::uint32_t> ranks, std::uint32_t member, std::uint64_t piece,
           std::unique_ptr<Assembly> assembly)
    : commons_(commons),
      ranks_(std::move(ranks)),
      member_(member),
      mapped_(commons.direct_to(ranks_)),
      piece_(piece),
      among_alike_(commons.count_team(ranks_)),
      identity_(digest_of(ranks_) + among_alike_),
      setups_(*this, std::move(assembly)),
      blocking_(std::make_unique<BlockingCalls>(*this)) {
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) members_.emplace(ranks_[i], i);
  // For a debugger; all teams are alike. A vector begins with the pointers to its first element
  // and behind its last one.
  static const std::array fields{tap::debug_field("rank", *this, member_), tap::debug_field("ranks", *this, ranks_),
                                 tap::debug_field("calls", *this, calls_), tap::debug_field("passed", *this, passed_)};
  static const bool shown = (engine::show_type(kType, fields), true);
  static_cast<void>(shown);
}

std::string Team::words() const {
  std::string text = size() == commons_.context().size() ? "all ranks" : "the team of ranks " + tap::list_of(ranks_);
  if (among_alike_ > 0) text += " (team " + std::to_string(among_alike_ + 1) + " of these)";
  return text;
}

Team::~Team() {
  blocking_.reset();
  if (failed_member()) networks_.leave();
  const Assembly& assembly = setups_.assembly();
  if (assembly.status() == HEDDLE_DONE) commons_.arena().give_back_after(piece_, assembly.final_counters(), {});
}

base::Result<Team*> Team::world(worker::Context& context) {
  auto commons = Commons::of(context);
  if (!commons) return commons.status();
  Commons& all = **commons;
  auto piece = TeamPiece::take(all.arena(), context.size());
  Announcement mine{all.packed_arena(), piece ? piece->offset() : 0, HEDDLE_DONE,
                    all.direct()                                ? 2U
                    : context.transport().capabilities().direct ? 1U
                                                                : 0U};
  if (!piece) mine.status = HEDDLE_ERR_NO_MEMORY;
  if (const base::Status opened = all.open_port(); opened != HEDDLE_DONE) mine.status = opened;
  std::vector<std::vector<std::byte>> parts;
  base::Status status =
      context.exchange({worker::Collective::team, std::as_bytes(std::span(&mine, 1)), nullptr, HEDDLE_FOREVER}, &parts);
  std::vector<PackedRegion> arenas(parts.size());
  std::vector<std::uint64_t> pieces(parts.size());
  for (std::size_t rank = 0; status == HEDDLE_DONE && rank < parts.size(); ++rank) {
    Announcement theirs;
    if (parts[rank].size() != sizeof theirs) {
      status = base::fail(HEDDLE_ERR_PROTOCOL, "rank %zu does not say where its memory for collectives is", rank);
      break;
    }
    std::memcpy(&theirs, parts[rank].data(), sizeof theirs);
    arenas[rank] = theirs.arena;
    pieces[rank] = theirs.piece;
    status = judge_announcement(rank, theirs, mine);
  }
  if (status != HEDDLE_DONE) return status;
  all.know(arenas);
  std::vector<std::uint32_t> ranks(parts.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  return confirmed(context, create(all, {std::move(ranks), context.rank(), std::move(pieces)}, *piece));
}

base::Result<Team*> Team::create(Commons& commons, Members&& members, TeamPiece& piece) {
  auto assembly = Assembly::make(commons, members.ranks, members.member, members.pieces);
  if (!assembly) return assembly.status();
  auto team =
      std::make_unique<Team>(commons, std::move(members.ranks), members.member, piece.offset(), std::move(*assembly));
  piece.keep();  // the team gives it back
  return commons.teams().add(std::move(team));
}

// A team of the job exists for all its ranks, or for none.
base::Result<Team*> Team::confirmed(worker::Context& context, base::Result<Team*> made) {
  const std::string text = made ? "" : base::last_message();
  const base::Status mine = made ? HEDDLE_DONE : made.status();
  std::vector<std::vector<std::byte>> parts;
  const base::Status exchanged =
      context.exchange({worker::Collective::team, std::as_bytes(std::span(&mine, 1)), nullptr, HEDDLE_FOREVER}, &parts);
  if (!made) return base::fail(mine, "%s", text.c_str());
  base::Status status = exchanged;
  for (std::size_t rank = 0; status == HEDDLE_DONE && rank < parts.size(); ++rank) {
    base::Status theirs = HEDDLE_ERR_PROTOCOL;
    if (parts[rank].size() == sizeof theirs) std::memcpy(&theirs, parts[rank].data(), sizeof theirs);
    if (theirs != HEDDLE_DONE)
      status = base::fail(theirs, "rank %zu could not make the team (%s), so nobody has it", rank,
                          heddle_status_name(theirs));
  }
  if (status == HEDDLE_DONE) return made;
  // some ranks may have the team, and use it
  if (exchanged != HEDDLE_DONE) (*made)->setups_.fail(exchanged);
  (*made)->commons_.teams().remove(*made);
  return status;
}

base::Result<Team*> Team::split(std::optional<std::uint32_t> colour, std::int64_t key) {
  SetupRecord record;
  record.kind = SetupRecord::Kind::split;
  record.coloured = colour.has_value() ? 1 : 0;
  record.colour = colour.value_or(0);
  record.key = key;
  return make(record);
}

base::Result<Team*> Team::subset(std::span<const std::uint32_t> ranks) {
  std::vector<bool> named(size());
  SetupRecord record;
  record.kind = SetupRecord::Kind::subset;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= size())
      return base::fail(HEDDLE_ERR_RANK, "rank %u: the team has ranks 0-%u", ranks[i], size() - 1);
    if (named[ranks[i]]) return base::fail(HEDDLE_ERR_ARGUMENT, "rank %u is named twice for the new team", ranks[i]);
    named[ranks[i]] = true;
    if (ranks[i] != member_) continue;
    record.coloured = 1;
    record.key = static_cast<std::int64_t>(i);
  }
  if (ranks.empty()) return base::fail(HEDDLE_ERR_ARGUMENT, "a team has one member at least; none was named");
  record.list = wire::digest(std::as_bytes(ranks));
  return make(record);
}

base::Result<Team*> Team::make(SetupRecord record) {
  come_to_next();
  if (engine::inside_of() != nullptr) return engine::reject_wait("a call that makes a team");
  auto piece = TeamPiece::take(commons_.arena(), size());
  if (piece) {
    record.assembly = piece->offset();
  } else {
    record.status = HEDDLE_ERR_NO_MEMORY;
  }
  base::Result<Team*> made(static_cast<Team*>(nullptr));
  Round round(*this, record, [&](std::span<const SetupRecord> records) {
    // there is one: else the records would not have been accepted
    made = build(record, records, *piece);
    return made.status();
  });
  setups_.submit(round);
  commons_.wait(
      {"a call that makes a team"},
      [&] {
        const bool moved = setups_.advance();
        return Commons::looked(round.ended(), moved);
      },
      [this](tap::Wait& wait) {
        worker::awaits(wait, "not all members have made the same call");
        wait.step = {identity(), calls_, size(), words(), "the making of a team"};
      },
      [this](std::int64_t ns) { return setups_.fetch(ns); }, waits_);
  const base::Status status = round.status();
  if (status == HEDDLE_DONE && *made != nullptr) return made;
  if (made && *made != nullptr) {
    // A member has died while all told each other that they have the team: some members may have
    // heard it, and may use the team.
    if (status == HEDDLE_ERR_PEER_FAILED) (*made)->setups_.fail(status);
    commons_.teams().remove(*made);
  }
  if (status != HEDDLE_DONE) return status;
  return made;
}

// Makes the team of the members that have this member's colour; null: it has no colour.
base::Result<Team*> Team::build(const SetupRecord& mine, std::span<const SetupRecord> records, TeamPiece& piece) {
  if (mine.coloured == 0) return static_cast<Team*>(nullptr);
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t i = 0; i < size(); ++i)
    if (records[i].coloured != 0 && records[i].colour == mine.colour) chosen.push_back(i);
  std::ranges::sort(chosen, {}, [&](std::uint32_t i) { return std::pair(records[i].key, i); });
  Members members;
  for (const std::uint32_t i : chosen) {
    members.ranks.push_back(ranks_[i]);
    members.pieces.push_back(records[i].assembly);
  }
  members.member = static_cast<std::uint32_t>(std::ranges::find(chosen, member_) - chosen.begin());
  return create(commons_, std::move(members), piece);
}

base::Status Team::close() {
  if (running_) return base::fail(HEDDLE_ERR_STATE, "a blocking call on the team is under way: it cannot be freed");
  if (const std::size_t open = open_.load(std::memory_order_acquire); open > 0) {
    return base::fail(HEDDLE_ERR_STATE,
                      "the team has %zu operations that are not freed, or not waited for; end them before the team",
                      open);
  }
  commons_.teams().remove(this);
  return HEDDLE_DONE;
}

std::optional<std::uint32_t> Team::member(std::uint32_t rank_in_job) const {
  const auto found = members_.find(rank_in_job);
  return found == members_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::uint32_t> Team::failed_member() const {
  for (std::uint32_t i = 0; i < size(); ++i)
    if (commons_.context().failed(ranks_[i])) return i;
  return std::nullopt;
}

// A connection may be lost before the launcher reports a death. If several connections are lost,
// reports the first: the members behind the others may only have left.
base::Status Team::report_dead() const {
  if (const auto failed = failed_member()) return report_failed(*failed);
  const auto lost = [this](std::uint32_t member) { return commons_.context().transport().lost(ranks_[member]); };
  std::uint32_t first = 0;
  for (std::uint32_t i = 1; i < size(); ++i) {
    if (lost(i) != 0 && (lost(first) == 0 || lost(i) < lost(first))) first = i;
  }
  if (lost(first) != 0) return report_failed(first);
  return base::fail(HEDDLE_ERR_PEER_FAILED,
                    "a member of the team has died or left: this team is over; teams of the living go on, such as "
                    "one built of what they offer (heddle_team_offer, heddle_team_build); "
                    "heddle_context_peer_status tells who lives");
}

std::uint64_t Team::failure_epoch() const {
  return commons_.context().bootstrap().failure_epoch().load(std::memory_order_acquire);
}

base::Status Team::report_failed(std::uint32_t member) const {
  return base::fail(HEDDLE_ERR_PEER_FAILED,
                    "rank %u of the team (%u of the job) has failed or left: this team is over; teams without it, made "
                    "before or built of what the living offer, go on",
                    member, ranks_[member]);
}

// ---- operations ---------------------------------------------------------------------------------

base::Result<Collective*> Team::open(const Call& call, Use use) {
  auto made = Collective::open(*this, call, use);
  if (made) (*made)->set_number(calls_);
  return made;
}

void Team::come_to_next() {
  ++calls_;
  if (commons_.context().tracer() != nullptr) commons_.context().note_entered(identity(), calls_, size());
}

base::Result<Collective*> Team::init(const Call& call) {
  if (engine::inside_of() != nullptr) return engine::reject_wait("a call that makes a collective operation ready");
  come_to_next();
  for (;;) {
    auto made = open(call, Use::persistent);
    if (!made) return made;
    const base::Status status = (*made)->wait_ready();
    const bool again = networks_.decided(status, (*made)->by_interface());
    if (status == HEDDLE_DONE) return made;
    commons_.collectives().remove(*made);
    if (!again) return status;
  }
}

base::Result<Collective*> Team::start(const Call& call) {
  base::show_told();
  come_to_next();
  return open(call, Use::once);
}

base::Status Team::run(const Call& call) {
  if (engine::inside_of() != nullptr) return engine::reject_wait("a collective call");
  if (running_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a blocking call on this team is under way: no other may come from the progress of its waits "
                      "(heddle_team_set_waits), or from another thread");
  }
  struct Running {
    bool& now;
    explicit Running(bool& is) : now(is) { now = true; }
    ~Running() { now = false; }
  } const running(running_);
  come_to_next();
  const base::Status status = blocking_->run(call);
  pass(calls_);
  return status;
}

// Teams that a rank makes alone, from the members' offers: the program has carried the members'
// records to all of them.

namespace {

base::Result<Commons*> known_commons(worker::Context& context) {
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
base::Status judge_ranks(std::span<const std::uint32_t> ranks, const worker::Context& context) {
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

base::Status Team::offer(worker::Context& context, std::uint32_t size, TeamRecord* record) {
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

base::Status Team::withdraw(worker::Context& context, const TeamRecord& record) {
  // nothing was offered
  if (record.magic == TeamRecord::kMagic && record.status != HEDDLE_DONE) return HEDDLE_DONE;
  auto commons = known_commons(context);
  if (!commons) return commons.status();
  return (*commons)->offers().take(record) ? HEDDLE_DONE : no_offer(record);
}

base::Result<Team*> Team::from_offers(worker::Context& context, std::span<const std::uint32_t> ranks,
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
