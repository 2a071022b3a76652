// PEs that do something together, and the few steps that all collectives are made of.
//
// A group is a team, whose words lie in its slot of the library's memory, or an active set, whose
// words are the program's pSync.
//
//   step        what it needs            waits for                use
//   sync        -                        all members              order
//   exchange    ≤ 56 bytes, ≤ 8 members  all members              one line of each member carries
//       number and data
//   publish     ≤ 4096 bytes             all members              each puts data on its board;
//       after the sync the others read
//   give        -                        the root alone           the root puts data into the
//       others' memory, and tells them
//   show        ≤ 8 members              the root; it for all     the others fetch from the root's
//       memory, all at the same time
//
// Where messages are all that reaches some member, a sync is a barrier of Heddle's team: each word
// that one member sets at another would be a message and its acknowledgement (decision 0041).
//
// Numbers of a team only grow, so nothing has to be set back, and a member that is ahead disturbs
// nobody: exchange and publish alternate between two places, and nobody is two ahead of a member
// that still reads. The words of an active set count up when told and down when heard, and are zero
// again after each use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/reserved.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

struct Group {
  Members members;
  int me = 0;                // this PE's number among them
  TeamSlot* slot = nullptr;  // this PE's; null: an active set
  long* psync = nullptr;     // of an active set
  std::uint64_t syncs = 0;   // how many have begun
  std::uint64_t exchanges = 0;
  std::uint64_t boards = 0;
  std::uint64_t broadcasts = 0;
  // how many fetches by others this member has waited for, as the root of show()
  std::uint64_t fetches = 0;
  heddle_team team{};  // Heddle's, of the same members; id 0: there is none
  // of `team`, where some members are reached by messages alone; id 0: they are not
  heddle_collective barrier{};

  [[nodiscard]] int world(int member) const { return members.start + member * members.stride; }
  [[nodiscard]] bool by_team() const { return barrier.id != 0; }
  [[nodiscard]] bool one_round() const { return slot != nullptr && members.size <= kRadix; }
};

// The number among `members` of PE `world`; -1: it is none of them.
int member_of(const Members& members, int world);

// Returns when all members have come. What each of them stored before, all see afterwards; what it
// posted is not waited for.
void sync(Call call, Group& group);

// Everybody's `bytes` bytes to everybody: all[i * bytes] is member i's. One round.
inline constexpr std::size_t kExchangeBytes = sizeof(TeamSlot::Line::payload);
void exchange(Call call, Group& group, const void* mine, std::size_t bytes, std::byte* all);

// Lays `mine` on this PE's board and waits for all members to have done so. The boards' symmetric
// address, to be read before the group's next publish ends: peer_bytes().
const std::byte* publish(Call call, Group& group, const void* mine, std::size_t bytes);

// Everybody's `bytes` (at most kBoardBytes) bytes to everybody, by exchange or publish:
// visit(member, bytes), in the order of the members. Teams only.
template <class Visit>
void contributions(Call call, Group& group, const void* mine, std::size_t bytes, const Visit& visit);

// From the root's `source` to everybody else's `dest`, which all of them have ready. Nobody waits
// for others than the root.
void give(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root);

// From the root's `source` by everybody else to their `dest`. The root waits until all have it, the
// others for the root alone. Groups of one round.
void show(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root);

// The sum of `bytes` over the members before this one, by way of one after the other. Active sets
// only.
std::size_t prefix_in_chain(Call call, Group& group, std::size_t bytes);

// `bytes` bytes at the symmetric `address` of a member: where they are, or a copy in `scratch` if
// messages have to fetch them.
const std::byte* peer_bytes(Call call, const Group& group, const void* address, std::size_t bytes, int member,
                            std::byte* scratch);
// Puts into a member's memory; `source` may be used again. Visible to the member after complete()
// and a sync.
void to_peer(Call call, const Group& group, void* dest, const void* source, std::size_t bytes, int member);
// Waits for what went to the default context by messages.
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
