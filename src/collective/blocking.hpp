// The blocking calls of a team: in which pieces they go, and the operations that they keep.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "collective/runner.hpp"

namespace heddle::collective {

class Collective;
class Team;

// For the one thread that is in a collective call of the team.
//
// All members know the same of earlier calls, and so decide alike. Therefore what is known changes
// only when a call, or a piece of it, has succeeded: calls that differ fail at all members, and
// leave nothing behind.
class BlockingCalls {
 public:
  explicit BlockingCalls(Team& team);
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Starts the operation and waits for it.
  base::Status run(const Call& call);

 private:
  struct Key {
    Operation operation;
    std::uint32_t root;
    std::uint64_t bytes;
    std::uint64_t whole;
    std::uint64_t element_bytes;
    std::uint32_t reduction_name;
    bool apart;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  // The operations of a key take turns: pieces of one call alternate, so that one is filled while
  // the other is emptied, and a member that waits for no other, such as the root of a broadcast,
  // may be as many calls ahead as there are operations.
  //
  // They are added one by one, but none in a call of several pieces after the first call with its
  // key: in there, members that are ahead have ended runs that others have not begun, and an error
  // would leave them so.
  struct Kept {
    Key key;
    std::size_t most = 1;  // operations
    std::vector<std::unique_ptr<Collective>> turns;
    std::size_t turn = 0;
    std::uint32_t calls = 0;  // at most kOften
    std::uint64_t room = 0;   // bytes of an operation, about
  };
  using Place = std::list<Kept>::iterator;
  // A call of blocks that go in pieces of all blocks.
  struct Length {
    Operation operation;
    std::uint64_t bytes;
    bool operator==(const Length&) const = default;
  };
  // An operation that was set up, and what all members have learnt from it.
  struct Opened {
    std::unique_ptr<Collective> collective;  // null: not set up because of `status`
    base::Status status = HEDDLE_DONE;
    bool out_of_memory = false;  // all members know
    bool crowded = false;        // likewise
  };
  // Whether every member's memory is such that the others put straight into it. The members ask
  // each other again after 1, 2, 4 … calls with the same answer.
  struct Reached {
    bool answer = false;
    std::uint32_t period = 1;
    std::uint32_t left = 1;
  };

  [[nodiscard]] static Key key_of(const Call& call);
  Opened open(const Call& call);
  base::Result<Place> add(const Call& call, std::size_t most);
  void add_turn(Kept& kept, std::unique_ptr<Collective> collective);
  void drop_until(std::uint64_t most_bytes);
  void drop_last();
  base::Status run_in(Kept& kept, const Call& call);
  void count(Kept& kept) const;

  // `most`: operations that the key gets at first.
  base::Status run_piece(const Call& call, std::size_t most = 1);
  base::Status run_whole(const Call& call);
  base::Status run_vector(const Call& call);
  [[nodiscard]] bool may_cut(const Call& call) const;
  base::Status run_blocks(const Call& call);
  base::Status run_blocks_again(const Call& call, Reached* reached);
  base::Status run_apart(const Call& call);
  base::Status run_pieces(const Call& call);
  void remember(const Call& call);
  base::Status ask(const Call& call, Reached* reached);

  Team& team_;
  std::list<Kept> kept_;  // the last used first
  std::unordered_map<Key, Place, KeyHash> kept_by_key_;
  std::vector<Length> lately_;  // the last first
  Reached reached_;
  std::uint64_t room_ = 0;      // of all that is kept
  bool out_of_memory_ = false;  // add() has failed for this reason, and all members know
};

}  // namespace heddle::collective
