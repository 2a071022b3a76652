#include "openshmem/teams.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/memory/segments.hpp"
#include "openshmem/patience.hpp"

namespace heddle::shmem {
namespace {

struct Team {
  Group group;  // members.size 0: there is no team in this slot
  std::uintptr_t generation = 0;
  shmem_team_config_t config{};
};

// A set of slots.
constexpr std::size_t kWords = kTeams / 64;
using Slots = std::array<std::uint64_t, kWords>;

struct Books {
  std::mutex mutex;  // protects the sets; the users of a team take care of the team itself
  Slots taken{};
  Slots offered{};  // offered by splits in progress on any thread
  // How often offers were taken back. Relaxed: it only ends a pause.
  std::atomic<std::uint64_t> returns{0};
  Team teams[kTeams];
};
Books g_books;

constexpr unsigned kSlotBits = 16;
constexpr std::uintptr_t kSlotMask = (std::uintptr_t{1} << kSlotBits) - 1;
static_assert(kTeams < kSlotMask);

// Concurrent splits of different parents by threads of one PE offer different slots first, so that
// they rarely conflict.
constexpr std::size_t kClasses = 16;

shmem_team_t handle_of(std::size_t slot) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): handles are numbers behind the type of the standard
  return reinterpret_cast<shmem_team_t>(g_books.teams[slot].generation << kSlotBits | (slot + 1));
}

// Null: SHMEM_TEAM_INVALID.
Team* find(Call call, const char* argument, shmem_team_t handle) {
  check_initialized(call);
  if (handle == SHMEM_TEAM_INVALID) return nullptr;
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  const std::uintptr_t slot = (value & kSlotMask) - 1;
  if (slot >= kTeams || g_books.teams[slot].generation > (value >> kSlotBits)) {
    fail(call, "%s %p %s", argument, reinterpret_cast<void*>(handle),
         slot >= kTeams ? "is no team" : "is a team that was destroyed before");
  }
  Team& team = g_books.teams[slot];
  if (team.generation != value >> kSlotBits || team.group.members.size == 0) {
    fail(call, "%s %p is no team, or one that was destroyed before", argument, reinterpret_cast<void*>(handle));
  }
  return &team;
}

// A group's Heddle objects.
struct ByMessages {
  heddle_team team{};
  heddle_collective barrier{};
};

bool all_mapped(const Members& members) {
  for (int i = 0; i < members.size; ++i) {
    const int pe = members.start + i * members.stride;
    if (pe != g_state.my_pe && !memory::is_near(pe)) return false;
  }
  return true;
}

void set(std::size_t slot, const Members& members, const shmem_team_config_t& config, const ByMessages& of_heddle) {
  Team& team = g_books.teams[slot];
  team.group = Group{.members = members,
                     .me = member_of(members, g_state.my_pe),
                     .slot = &reserved().slots[slot],
                     .team = of_heddle.team,
                     .barrier = of_heddle.barrier};
  team.config = config;
  g_books.taken[slot / 64] |= std::uint64_t{1} << slot % 64;
}

// The PEs whose heap this PE loads and stores directly, if they are evenly spaced, as a team
// requires; else this PE alone. The other members get the same result.
Members sharing_members() {
  Members members{g_state.my_pe, 1, 1};
  int first = -1;
  int last = -1;
  int count = 0;
  int stride = 0;
  for (int pe = 0; pe < g_state.n_pes; ++pe) {
    if (pe != g_state.my_pe && !memory::is_near(pe)) continue;
    if (count == 1) stride = pe - last;
    if (count > 1 && pe - last != stride) return members;
    first = count == 0 ? pe : first;
    last = pe;
    ++count;
  }
  return {first, std::max(stride, 1), count};
}

// Collective over the team: makes its barrier, if some member is reached only by messages. All
// members get the same result, also where the barrier or the team cannot be made; then sync uses
// the words.
ByMessages with_barrier(heddle_team team, const Members& members) {
  ByMessages made{team, {}};
  const bool wanted = team.id != 0 && !all_mapped(members);
  if (wanted && heddle_barrier_init(team, nullptr, &made.barrier) != HEDDLE_DONE) made.barrier = {};
  return made;
}

ByMessages world_by_messages(Call call, const Members& world) {
  if (world.size == 1) return {};
  const unsigned char mine = all_mapped(world) ? 0 : 1;
  std::vector<unsigned char> all(static_cast<std::size_t>(world.size));
  must(call, heddle_context_exchange(g_state.job, &mine, sizeof mine, all.data()));
  if (std::find(all.begin(), all.end(), 1) == all.end()) return {};
  heddle_team team{};
  return heddle_team_world(g_state.job, &team) == HEDDLE_DONE ? with_barrier(team, world) : ByMessages{};
}

// Collective over the parent: the Heddle team of the part that contains this PE.
ByMessages split(const Group& parent, const Members& members, std::uint32_t colour) {
  heddle_team team{};
  const int me = member_of(members, g_state.my_pe);
  if (parent.team.id == 0 || heddle_team_split(parent.team, colour, me, &team) != HEDDLE_DONE) return {};
  return with_barrier(team, members);
}

// Clears the words that others wrote for the team; the boards need no clearing.
void clean(TeamSlot& slot) {
  for (auto& round : slot.sync) {
    for (TeamSlot::Line& line : round) line.number = 0;
  }
  for (auto& parity : slot.exchange) {
    for (TeamSlot::Line& line : parity) line.number = 0;
  }
  for (TeamSlot::Line& line : slot.broadcast) line.number = 0;
  slot.fetched.number = 0;
}

// What the members of a parent exchange for a split.
struct Offer {
  Slots slots;            // free on this PE
  std::uint64_t decided;  // 0: another thread's split holds slots that it may return
};

// The slots that all members offer.
Offer agree(Call call, Group& parent, const Offer& mine) {
  Offer all = mine;
  contributions(call, parent, &mine, sizeof mine, [&](int, const std::byte* bytes) {
    Offer one;
    std::memcpy(&one, bytes, sizeof one);
    for (std::size_t i = 0; i < kWords; ++i) all.slots[i] &= one.slots[i];
    all.decided &= one.decided;
  });
  return all;
}

Offer make_offer(std::size_t parent_slot, bool of_class) {
  const std::lock_guard lock(g_books.mutex);
  Offer offer{{}, 1};
  for (std::size_t slot = 0; slot < kTeams; ++slot) {
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    if (of_class && slot % kClasses != parent_slot % kClasses) continue;
    if ((g_books.taken[slot / 64] & bit) != 0) continue;
    if ((g_books.offered[slot / 64] & bit) != 0) {
      offer.decided = 0;
    } else {
      offer.slots[slot / 64] |= bit;
    }
  }
  for (std::size_t i = 0; i < kWords; ++i) g_books.offered[i] |= offer.slots[i];
  return offer;
}

// Takes the lowest `wanted` of the agreed slots, and cancels the offer of the others.
template <std::size_t kWanted>
bool take(const Offer& offer, const Offer& agreed, const std::array<bool, kWanted>& member,
          std::array<std::size_t, kWanted>& chosen) {
  const std::lock_guard lock(g_books.mutex);
  for (std::size_t i = 0; i < kWords; ++i) g_books.offered[i] &= ~offer.slots[i];
  g_books.returns.fetch_add(1, std::memory_order_relaxed);
  std::size_t found = 0;
  for (std::size_t slot = 0; slot < kTeams && found < kWanted; ++slot) {
    if ((agreed.slots[slot / 64] >> slot % 64 & 1) != 0) chosen[found++] = slot;
  }
  if (found < kWanted) return false;
  for (std::size_t i = 0; i < kWanted; ++i) {
    if (member[i]) g_books.taken[chosen[i] / 64] |= std::uint64_t{1} << chosen[i] % 64;
  }
  return true;
}

// Until another thread of this PE has ended its split's agreement. Not for long: that thread may
// wait for a PE that does the same here, on which the thread of this split has to go on.
void let_others_decide(Call call, std::uint64_t returns) {
  constexpr std::int64_t kPauseNs = 100'000;
  const auto others_have = [=] { return g_books.returns.load(std::memory_order_relaxed) != returns; };
  static_cast<void>(comes_true(call, others_have, kPauseNs));
}

// Collective over the parent: one slot for each team, free on every member. False on all members:
// there are not enough slots, or some member is not `able`.
template <std::size_t kWanted>
bool choose_slots(Call call, Group& parent, bool able, const std::array<bool, kWanted>& member,
                  std::array<std::size_t, kWanted>& chosen) {
  const auto parent_slot = static_cast<std::size_t>(parent.slot - reserved().slots);
  for (bool first = true;; first = false) {
    const std::uint64_t returns = g_books.returns.load(std::memory_order_relaxed);
    const Offer offer = able ? make_offer(parent_slot, first) : Offer{{}, 1};
    const Offer agreed = agree(call, parent, offer);
    if (take(offer, agreed, member, chosen)) return true;
    if (!first && agreed.decided != 0) return false;
    if (!first && offer.decided == 0) let_others_decide(call, returns + 1);
  }
}

// False: the program asks for a feature that does not exist.
bool read_config(Call call, const char* argument, const shmem_team_config_t* config, long mask,
                 shmem_team_config_t& wanted) {
  wanted = {};
  if ((mask & ~SHMEM_TEAM_NUM_CONTEXTS) != 0) return false;
  if (mask == 0) return true;
  if (config == nullptr) fail(call, "%s is null, but its mask is %#lx", argument, static_cast<unsigned long>(mask));
  wanted.num_contexts = config->num_contexts;
  return wanted.num_contexts >= 0;
}

// The members of a part of the parent, by their PE numbers in the world.
Members part(const Members& parent, int start, int stride, int size) {
  return {parent.start + start * parent.stride, stride * parent.stride, size};
}

bool valid_triplet(int start, int stride, int size, int n) {
  const long last = start + static_cast<long>(stride) * (size - 1L);
  return size >= 1 && size <= n && start >= 0 && start < n && last >= 0 && last < n && (stride != 0 || size == 1);
}

}  // namespace

void open_teams(Call call) {
  g_books.taken = {};
  g_books.offered = {};
  const Members world{0, 1, g_state.n_pes};
  set(0, world, {}, world_by_messages(call, world));
  set(1, sharing_members(), {}, {});
}

void close_teams() {
  for (Team& team : g_books.teams) team.group = {};
}

Group& world_team() {
  return g_books.teams[0].group;
}

Group& checked_team(Call call, shmem_team_t team) {
  Team* found = find(call, "team", team);
  if (found == nullptr) fail(call, "team is SHMEM_TEAM_INVALID");
  return found->group;
}

int team_my_pe(Call call, shmem_team_t team) {
  const Team* found = find(call, "team", team);
  return found == nullptr ? -1 : found->group.me;
}

int team_n_pes(Call call, shmem_team_t team) {
  const Team* found = find(call, "team", team);
  return found == nullptr ? -1 : found->group.members.size;
}

int team_get_config(Call call, shmem_team_t team, long config_mask, shmem_team_config_t* config) {
  const Team* found = find(call, "team", team);
  if (found == nullptr) return 1;
  if ((config_mask & SHMEM_TEAM_NUM_CONTEXTS) == 0) return 0;
  if (config == nullptr) fail(call, "config is null");
  config->num_contexts = found->config.num_contexts;
  return 0;
}

int team_translate_pe(Call call, shmem_team_t src_team, int src_pe, shmem_team_t dest_team) {
  const Team* from = find(call, "src_team", src_team);
  const Team* to = find(call, "dest_team", dest_team);
  if (from == nullptr || to == nullptr || src_pe < 0 || src_pe >= from->group.members.size) return -1;
  return member_of(to->group.members, from->group.world(src_pe));
}

void* team_ptr(Call call, shmem_team_t team, const void* dest, int pe) {
  const Team* found = find(call, "team", team);
  if (found == nullptr || pe < 0 || pe >= found->group.members.size) return nullptr;
  return mapped(dest, found->group.world(pe));
}

int team_sync(Call call, shmem_team_t team) {
  Group& group = checked_team(call, team);
  check_alike(call, group, kSyncAll, {});
  sync(call, group);
  return 0;
}

int team_split_strided(Call call, shmem_team_t parent_team, int start, int stride, int size,
                       const shmem_team_config_t* config, long config_mask, shmem_team_t* new_team) {
  Team* parent = find(call, "parent_team", parent_team);
  if (new_team == nullptr) fail(call, "new_team is null");
  *new_team = SHMEM_TEAM_INVALID;
  if (parent == nullptr || !valid_triplet(start, stride, size, parent->group.members.size)) return 1;
  check_alike(call, parent->group, call, {{"start", start}, {"stride", stride}, {"size", size}});
  shmem_team_config_t wanted;
  const bool able = read_config(call, "config", config, config_mask, wanted);
  const Members members = part(parent->group.members, start, stride, size);
  const std::array member{member_of(members, g_state.my_pe) >= 0};
  std::array<std::size_t, 1> slot{};
  if (!choose_slots(call, parent->group, able, member, slot)) return 1;
  const ByMessages of_heddle = split(parent->group, members, member[0] ? 0 : HEDDLE_NO_COLOUR);
  if (!member[0]) return 0;
  const std::lock_guard lock(g_books.mutex);
  set(slot[0], members, wanted, of_heddle);
  *new_team = handle_of(slot[0]);
  return 0;
}

int team_split_2d(Call call, shmem_team_t parent_team, int xrange, const shmem_team_config_t* xaxis_config,
                  long xaxis_mask, shmem_team_t* xaxis_team, const shmem_team_config_t* yaxis_config, long yaxis_mask,
                  shmem_team_t* yaxis_team) {
  Team* parent = find(call, "parent_team", parent_team);
  if (xaxis_team == nullptr || yaxis_team == nullptr) {
    fail(call, "%s is null", xaxis_team == nullptr ? "xaxis_team" : "yaxis_team");
  }
  *xaxis_team = SHMEM_TEAM_INVALID;
  *yaxis_team = SHMEM_TEAM_INVALID;
  if (parent == nullptr || xrange < 1) return 1;
  check_alike(call, parent->group, call, {{"xrange", xrange}});
  const Group& group = parent->group;
  const int n = group.members.size;
  const int width = std::min(xrange, n);
  shmem_team_config_t wanted[2];
  const bool x_able = read_config(call, "xaxis_config", xaxis_config, xaxis_mask, wanted[0]);
  const bool y_able = read_config(call, "yaxis_config", yaxis_config, yaxis_mask, wanted[1]);
  std::array<std::size_t, 2> slots{};
  if (!choose_slots(call, parent->group, x_able && y_able, std::array{true, true}, slots)) return 1;
  const int x = group.me % width;
  const int row = group.me - x;
  const Members of_row = part(group.members, row, 1, std::min(width, n - row));
  const Members of_column = part(group.members, x, width, (n - x + width - 1) / width);
  const ByMessages row_team = split(group, of_row, static_cast<std::uint32_t>(row));
  const ByMessages column_team = split(group, of_column, static_cast<std::uint32_t>(x));
  const std::lock_guard lock(g_books.mutex);
  set(slots[0], of_row, wanted[0], row_team);
  set(slots[1], of_column, wanted[1], column_team);
  *xaxis_team = handle_of(slots[0]);
  *yaxis_team = handle_of(slots[1]);
  return 0;
}

void team_destroy(Call call, shmem_team_t team) {
  Team* found = find(call, "team", team);
  if (found == nullptr) return;
  const auto slot = static_cast<std::size_t>(found - g_books.teams);
  if (slot < 2)
    fail(call, "team is %s, which lives as long as the library", slot == 0 ? "SHMEM_TEAM_WORLD" : "SHMEM_TEAM_SHARED");
  check_alike(call, found->group, call, {});
  close_shareable_contexts(call, team);
  // Nobody reads the boards any more; the slot may next belong to another team.
  sync(call, found->group);
  clean(*found->group.slot);
  if (found->group.by_team()) must(call, heddle_collective_free(found->group.barrier));
  if (found->group.team.id != 0) must(call, heddle_team_free(found->group.team));
  const std::lock_guard lock(g_books.mutex);
  found->group = {};
  ++found->generation;
  g_books.taken[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
}

int team_create_ctx(Call call, shmem_team_t team, long options, shmem_ctx_t* ctx) {
  const Team* found = find(call, "team", team);
  if (ctx == nullptr) fail(call, "ctx is null");
  *ctx = SHMEM_CTX_INVALID;
  if (found == nullptr) return 1;
  return create_context(call, options, found->group.members, team, ctx);
}

int ctx_get_team(Call call, shmem_ctx_t ctx, shmem_team_t* team) {
  check_initialized(call);
  if (team == nullptr) fail(call, "team is null");
  *team = SHMEM_TEAM_INVALID;
  if (ctx == SHMEM_CTX_INVALID) return 1;
  const ShmemContext& context = context_of(ctx);
  if (context.members.size == 0) fail(call, "ctx %p was destroyed before", reinterpret_cast<void*>(ctx));
  *team = context.team;
  return 0;
}

}  // namespace heddle::shmem
