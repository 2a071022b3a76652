// Groups of PEs, and the few steps that all collectives are made of.
//
// A group is a team or an active set. A team's words lie in its slot of the library's memory, an
// active set's words in the program's pSync.
//
//   step        needs                    waits for             use
//   sync        -                        all members           order
//   exchange    ≤ 56 bytes, ≤ 8 members  all members           a line of each member carries its
//                                                              number and data
//   publish     ≤ 4096 bytes             all members           each writes data to its board; the
//                                                              others read it after the sync
//   give        -                        only the root         the root puts data into the others'
//                                                              memory, and signals them
//   show        ≤ 8 members              the root; it for all  the others fetch from the root's
//                                                              memory, all at the same time
//
// Where some member is reached only by messages, sync is a barrier of Heddle's team: otherwise each
// word that one member sets at another costs a message and its acknowledgement (decision 0041).
//
// A team's numbers only grow, so nothing is reset, and a member that is ahead disturbs no other:
// exchange and publish alternate between two places, and no member is two uses ahead of a member
// that still reads. An active set's words are counters: the sender adds, the receiver subtracts,
// and they are zero again after each use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/state.hpp"

namespace heddle::shmem {

// Radix of the dissemination: in a round, a PE signals kRadix - 1 others, so up to kRadix PEs need
// one round. With more PEs than cores a round costs a turn of the scheduler, but one more line
// costs almost nothing.
inline constexpr int kRadix = 8;
inline constexpr int kRounds = 7;  // 8^7 PEs

struct TeamSlot {
  // What another PE writes: a number that only grows, and a few bytes of data.
  struct alignas(64) Line {
    std::uint64_t number;
    std::byte payload[56];
  };
  static constexpr std::size_t kBoardBytes = 4096;

  Line sync[kRounds][kRadix - 1];  // by round and distance
  // by parity of the exchange and by the member that writes; teams of at most kRadix
  Line exchange[2][kRadix];
  Line broadcast[kRadix];  // by the root that writes; teams of at most kRadix
  // members add 1 when they have fetched this member's data in show()
  Line fetched;
  std::byte board[2][kBoardBytes];  // by parity; written by the owner, read by the others
};

inline constexpr std::size_t kTeams = 256;

struct Reserved {
  TeamSlot slots[kTeams];
};
inline constexpr std::size_t kReservedBytes = (sizeof(Reserved) + 0xffffU) & ~std::size_t{0xffff};

// This PE's reserved memory.
inline Reserved& reserved() {
  return *static_cast<Reserved*>(g_state.reserved);
}

struct Group {
  Members members;
  int me = 0;                // this PE's number among them
  TeamSlot* slot = nullptr;  // this PE's slot; null: an active set
  long* psync = nullptr;     // of an active set
  std::uint64_t syncs = 0;   // number of syncs begun
  std::uint64_t exchanges = 0;
  std::uint64_t boards = 0;
  std::uint64_t broadcasts = 0;
  // fetches by others that this member has waited for, as the root of show()
  std::uint64_t fetches = 0;
  heddle_team team{};  // Heddle's team of the same members; id 0: there is none
  // barrier of `team`, if some member is reached only by messages; id 0: there is none
  heddle_collective barrier{};

  [[nodiscard]] int world(int member) const { return members.start + member * members.stride; }
  [[nodiscard]] bool by_team() const { return barrier.id != 0; }
  [[nodiscard]] bool one_round() const { return slot != nullptr && members.size <= kRadix; }
};

// The number of PE `world` among `members`; -1: it is not a member.
int member_of(const Members& members, int world);

// Returns when all members have called it. Whatever a member stored before is then visible to all.
// It does not wait for posted operations.
void sync(Call call, Group& group);

// Every member sends `bytes` bytes to every member: all[i * bytes] is member i's. One round.
inline constexpr std::size_t kExchangeBytes = sizeof(TeamSlot::Line::payload);
void exchange(Call call, Group& group, const void* mine, std::size_t bytes, std::byte* all);

// Copies `mine` to this PE's board and waits until all members have done so. Returns the boards'
// symmetric address, for peer_bytes(); it is valid until the group's next publish ends.
const std::byte* publish(Call call, Group& group, const void* mine, std::size_t bytes);

// Every member's `bytes` (at most kBoardBytes) bytes go to every member, by exchange or publish.
// Calls visit(member, bytes) in the order of the members. Teams only.
template <class Visit>
void contributions(Call call, Group& group, const void* mine, std::size_t bytes, const Visit& visit);

// The root puts its `source` into every other member's `dest`, which must be ready on all of them.
// The others wait only for the root.
void give(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root);

// The other members fetch the root's `source` into their `dest`. The root waits until all have it;
// the others wait only for the root. Groups of one round.
void show(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root);

// The sum of `bytes` over the members before this one, passed from member to member. Active sets
// only.
std::size_t prefix_in_chain(Call call, Group& group, std::size_t bytes);

// `bytes` bytes at the symmetric `address` of a member: the memory itself, or a copy in `scratch`
// if messages must fetch it.
const std::byte* peer_bytes(Call call, const Group& group, const void* address, std::size_t bytes, int member,
                            std::byte* scratch);
// Puts into a member's memory. `source` may be reused on return. The data is visible to the member
// after complete() and a sync.
void to_peer(Call call, const Group& group, void* dest, const void* source, std::size_t bytes, int member);
// Waits for the operations that the default context has posted.
void complete(Call call);

template <class Visit>
void contributions(Call call, Group& group, const void* mine, std::size_t bytes, const Visit& visit) {
  const int n = group.members.size;
  if (group.one_round() && bytes <= kExchangeBytes) {
    alignas(64) std::byte all[kRadix * kExchangeBytes];
    exchange(call, group, mine, bytes, all);
    for (int i = 0; i < n; ++i) visit(i, all + static_cast<std::size_t>(i) * bytes);
    return;
  }
  const std::byte* board = publish(call, group, mine, bytes);
  alignas(64) std::byte scratch[TeamSlot::kBoardBytes];
  for (int i = 0; i < n; ++i) visit(i, peer_bytes(call, group, board, bytes, i, scratch));
}

}  // namespace heddle::shmem
