// Matches tagged messages with posted receives: KeyTable, a hash table of nodes, and Matching,
// which has two of them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "heddle/heddle.h"
#include "tap/debug_view.hpp"

namespace heddle::protocol {

inline constexpr std::uint32_t kNowhere = ~0U;

// Where a node is in one table.
template <class Node>
struct Place {
  Node* chain = nullptr;
  Node* next = nullptr;  // in the ring, in the order of entry
  Node* prev = nullptr;
  std::uint32_t hash = 0;
  std::uint32_t shape = kNowhere;  // the user's number (not kNowhere) while in the table
};

// Rings of nodes linked by place[kWhich]; *head is the earliest, null if the ring is empty.
template <std::size_t kWhich, class Node>
void ring_append(Node** head, Node* node) {
  Place<Node>& place = node->place[kWhich];
  if (*head == nullptr) {
    place.next = place.prev = node;
    *head = node;
    return;
  }
  Node* const latest = (*head)->place[kWhich].prev;
  place.next = *head;
  place.prev = latest;
  latest->place[kWhich].next = node;
  (*head)->place[kWhich].prev = node;
}

// Returns the new head of the ring; null: the ring is empty.
template <std::size_t kWhich, class Node>
Node* ring_remove(Node* head, Node* node) {
  Place<Node>& place = node->place[kWhich];
  if (place.next == node) return nullptr;
  place.next->place[kWhich].prev = place.prev;
  place.prev->place[kWhich].next = place.next;
  return head == node ? place.next : head;
}

// A hash table of nodes that the caller owns. The nodes of one key form a ring in the order of
// entry. The first of them, the leader, represents the whole ring in its bucket. One thread at a
// time.
//
// So a search looks at one node per key in the bucket, however many nodes a key has. The earliest
// node of a key is found without looking at the others, and any node is removed in constant time.
// Nothing is allocated per node.
//
// Invariants
//   A node is in the table exactly while place.shape != kNowhere.
//   leader: place.prev is the latest node of its key (itself, if it is the only one); `chain` leads
//   to the next leader of the bucket. The `chain` of other nodes means nothing.
//   bucket of a leader == the top bits of place.hash
// Growth: the buckets double when a new key makes more keys than buckets, up to the given limit, at
// the end of add() and nowhere else. If no memory is available or the limit is reached, the table
// stays correct and its chains get longer.
template <class Node, std::size_t kWhich>
class KeyTable {
 public:
  // max_buckets is rounded down to a power of two, at least 2.
  explicit KeyTable(std::uint32_t max_buckets)
      : max_buckets_(std::bit_floor(max_buckets < 2 ? 2U : max_buckets)),
        bucket_count_(max_buckets_ < kFirst ? max_buckets_ : kFirst),
        shift_(shift_of(bucket_count_)),
        grow_at_(bucket_count_) {}
  KeyTable(const KeyTable&) = delete;  // buckets_ may point into it
  KeyTable& operator=(const KeyTable&) = delete;
  ~KeyTable() = default;

  // The link to the leader of the key, or the null link where the leader would be. Valid until the
  // table changes. same(node) says whether the node has the key. Adds the number of nodes looked at
  // to *visits.
  template <class Same>
  [[gnu::always_inline]] Node** find(std::uint32_t hash, std::uint64_t* visits, Same same) {
    Node** link = &buckets_[hash >> shift_];
    Node* node = *link;
    if (node == nullptr) return link;
    std::uint64_t looked_at = 1;
    while (!same(static_cast<const Node&>(*node))) {
      link = &at(node).chain;
      node = *link;
      if (node == nullptr) break;
      ++looked_at;
    }
    *visits += looked_at;
    return link;
  }

  // link: what find() returned for the node's key and hash.
  [[gnu::always_inline]] void add(Node** link, Node* node, std::uint32_t hash, std::uint32_t shape) {
    Place<Node>& place = at(node);
    place.hash = hash;
    place.shape = shape;
    if (*link != nullptr) {
      ring_append<kWhich>(link, node);
      return;
    }
    place.next = place.prev = node;
    place.chain = nullptr;
    *link = node;
    if (++keys_ > grow_at_) [[unlikely]]
      grow();
  }

  // link: what find() returned; *link is not null.
  [[gnu::always_inline]] void remove_leader(Node** link) {
    Node* const node = *link;
    Place<Node>& place = at(node);
    place.shape = kNowhere;
    if (place.next == node) {
      *link = place.chain;
      --keys_;
      return;
    }
    Node* const heir = ring_remove<kWhich>(node, node);
    at(heir).chain = place.chain;
    *link = heir;
  }

  // The node must be in the table. Adds the number of nodes looked at to *visits.
  void remove(Node* node, std::uint64_t* visits) {
    Node** const link = find(at(node).hash, visits, [node](const Node& leader) { return &leader == node; });
    if (*link != nullptr) {
      remove_leader(link);
    } else {
      // not a leader: the resulting head is not needed
      ring_remove<kWhich>(at(node).prev, node);
      at(node).shape = kNowhere;
    }
  }

  // f(node) for every node; it must not change the table.
  template <class F>
  void each(F f) const {
    for (std::uint32_t i = 0; i < bucket_count_; ++i) {
      for (const Node* leader = buckets_[i]; leader != nullptr; leader = leader->place[kWhich].chain) {
        const Node* node = leader;
        do {
          f(*node);
          node = node->place[kWhich].next;
        } while (node != leader);
      }
    }
  }

  // Removes all nodes of each key for which doomed(leader) holds. Passes each to out(node, its
  // shape), which may relink it.
  template <class Doomed, class Out>
  void extract_keys(Doomed doomed, Out out) {
    for (std::uint32_t i = 0; i < bucket_count_; ++i) {
      Node** link = &buckets_[i];
      while (*link != nullptr) {
        if (!doomed(static_cast<const Node&>(**link))) {
          link = &at(*link).chain;
          continue;
        }
        for (Node *node = *link, *const rest = at(node).chain; *link != rest; node = *link) {
          const std::uint32_t shape = at(node).shape;
          remove_leader(link);
          out(node, shape);
        }
      }
    }
  }

  // Forgets all nodes without touching them. The caller puts them in again, or needs their places
  // no longer.
  void clear() {
    for (std::uint32_t i = 0; i < bucket_count_; ++i) buckets_[i] = nullptr;
    keys_ = 0;
  }

  [[nodiscard]] std::uint32_t keys() const { return keys_; }
  // For a debugger: where the pointer to the buckets is, and where their number.
  [[nodiscard]] const void* shown_buckets() const { return static_cast<const void*>(&buckets_); }
  [[nodiscard]] const std::uint32_t& shown_count() const { return bucket_count_; }

 private:
  // inside the object, so that a table of few keys allocates nothing
  static constexpr std::uint32_t kFirst = 32;

  static Place<Node>& at(Node* node) { return node->place[kWhich]; }
  static std::uint32_t shift_of(std::uint32_t count) {
    return 32U - static_cast<std::uint32_t>(std::countr_zero(count));
  }

  [[gnu::noinline, gnu::cold]] void grow() {
    grow_at_ = grow_at_ > ~0U / 2 ? ~0U : grow_at_ * 2;  // also when it fails: no attempt per node
    if (bucket_count_ >= max_buckets_) return;
    const std::uint32_t count = bucket_count_ * 2;
    std::unique_ptr<Node*[]> larger(new (std::nothrow) Node*[count]());
    if (larger == nullptr) return;
    const std::uint32_t shift = shift_of(count);
    for (std::uint32_t i = 0; i < bucket_count_; ++i) {
      for (Node* leader = buckets_[i]; leader != nullptr;) {
        Node* const rest = at(leader).chain;
        Node** const bucket = &larger[at(leader).hash >> shift];
        at(leader).chain = *bucket;
        *bucket = leader;
        leader = rest;
      }
    }
    allocated_ = std::move(larger);
    buckets_ = allocated_.get();
    bucket_count_ = count;
    shift_ = shift;
  }

  std::uint32_t max_buckets_;
  std::uint32_t bucket_count_;
  std::uint32_t shift_;
  std::uint32_t grow_at_;
  std::uint32_t keys_ = 0;
  std::array<Node*, kFirst> first_{};
  std::unique_ptr<Node*[]> allocated_;
  Node** buckets_ = first_.data();
};

// The worker that a message comes from, in one word: the rank in the upper half, the worker in the
// lower.
using Source = std::uint64_t;
inline constexpr std::uint32_t kAnyNumber = ~0U;
inline constexpr Source kAnySource = ~0ULL;
inline constexpr std::uint64_t kWholeTag = ~0ULL;

constexpr Source source_of(heddle_peer peer) {
  return static_cast<std::uint64_t>(peer.rank) << 32 | peer.worker;
}
constexpr heddle_peer peer_of(Source worker) {
  return {static_cast<std::uint32_t>(worker >> 32), static_cast<std::uint32_t>(worker)};
}
constexpr std::uint32_t rank_of(Source source) {
  return static_cast<std::uint32_t>(source >> 32);
}

// What a receive or a probe asks for.
struct Wanted {
  std::uint64_t tag = 0;
  std::uint64_t mask = kWholeTag;  // bits of the tag that count
  Source source = kAnySource;      // kAnyNumber as the worker: any of the rank; or kAnySource

  bool operator==(const Wanted&) const = default;
};

// The two kinds of nodes. The caller derives its request and its buffered message from them (and
// casts the returned pointers down). A node must stay where it is while it is stored. A node that
// is not stored may be used again, as it is.
struct PostedReceive {
  Wanted wanted;  // set by the caller; post() clears the bits of the tag that do not count
  std::uint64_t sequence = 0;
  std::array<Place<PostedReceive>, 1> place;

  [[nodiscard]] bool stored() const { return place[0].shape != kNowhere; }
};

struct KeptMessage {
  std::uint64_t tag = 0;    // set by the caller
  Source source = 0;        // set by the caller: a worker
  std::uint64_t bytes = 0;  // set by the caller: memory held for this message, counted in bytes()
  KeptMessage* earlier = nullptr;
  KeptMessage* later = nullptr;
  std::array<Place<KeptMessage>, 3> place;

  [[nodiscard]] bool stored() const { return place[0].shape != kNowhere; }
};

// Decides which arriving tagged message belongs to which posted receive. A plain data structure: no
// transport, no data, no threads; the worker's mutual exclusion guards it.
//
// Meaning (that of MPI and UCX): a message takes the earliest posted receive that fits it, and a
// receive takes the earliest arrived message that fits it. So messages of one source and tag are
// received in the order of arrival, and receives that fit the same message are taken in the order
// of posting.
//
// Receives. A receive's *shape* is its mask and its kind of source: one worker, any worker of a
// rank, or any source. Programs use few shapes. All receives of a shape are in one hash table by
// (tag & mask, source, shape), numbered in the order of posting. An arriving message looks up one
// key for each shape that has receives now (with one shape: one key) and takes the receive with the
// lowest number. If more than kShapes shapes are in use at once, the receives of the others are in
// a list, which is searched in order.
//
// Programs post and receive windows of one tag and one worker. So one such key, the *current* one,
// has its receives in a ring of its own, which is found by two comparisons. A key becomes the
// current one when a receive of it is posted while the ring is empty and the table has none of that
// key; so its receives are never in both.
//
// Unexpected messages are kept in the order of arrival and in a hash table by (source, tag). Two
// more tables are filled at the first search that needs them: one by tag, for receives from any
// source, and one for one other shape. A search of yet another shape walks the messages in the
// order of arrival. The second table is rebuilt for the walking shape when, since its last use,
// walks have looked at more messages than there are. By then the walks have cost as much as the
// rebuilding.
//
// Cost (x86-64, g++ 12 -O2, instructions by callgrind): of the current key, inline, about 20 each
// for post() that stores and arrive() that matches. Of others (the same with 1 and with 16 tags):
// post() that stores 53, arrive() that matches 62, arrive() where nothing is posted 11, keep() 64,
// post() that takes a kept message 76, cancel() 44. With a mask or any source: post() 90, keep()
// 95, post() that takes a kept message 145. A search reads one bucket and the leaders of the keys
// in it.
//
// Nothing here allocates per receive or message: the caller owns the nodes. The tables grow as
// KeyTable describes: in post() and keep() after the node is in, and in a search that fills a
// further table; never in arrive(), cancel() and take(). A table takes at most 8 bytes × max(32,
// max_buckets, rounded down to a power of two). The caller must bound the number of nodes:
// receives(), messages() and bytes() give the numbers.
//
// Hostile peers choose tags but do not know the seed. The hash is multiply-shift with secret
// multipliers: for any set of tags chosen without knowing them, a search meets on average at most
// two other tags in its bucket. Many messages of one source and tag do not slow other searches: a
// search looks at one node per key.
class Matching {
 public:
  struct Options {
    // secret and unpredictable for peers (getrandom); otherwise they could cause collisions
    std::uint64_t seed = 0;
    std::uint32_t max_buckets = 1U << 20;  // of each table
  };
  static constexpr std::uint32_t kShapes = 16;

  explicit Matching(Options options);
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;
  // Does not touch nodes that are still stored: the caller owns them.
  ~Matching() = default;

  // Returns the earliest message that fits and removes it; the receive is then not stored. Null:
  // the receive is stored. The usual case is inline here and in arrive(): a call would save and
  // restore as many registers as it has work.
  [[gnu::always_inline]] KeptMessage* post(PostedReceive* receive) {
    const Wanted& wanted = receive->wanted;
    if (messages_ != 0 || wanted.mask != kWholeTag || !is_current(wanted.tag, wanted.source)) [[unlikely]]
      return post_other(receive);
    append_current(receive);
    return nullptr;
  }

  // A message has arrived: returns the receive that it belongs to, and removes it. Null: the
  // message is unexpected; the caller must keep() it (or drop it) before the next post().
  [[gnu::always_inline]] PostedReceive* arrive(std::uint64_t tag, Source source) {
    PostedReceive* const first = awaits(tag, source);
    if (first == nullptr) [[unlikely]]
      return arrive_other(tag, source);
    remove_current(first);
    return first;
  }
  // The first of two steps for the usual case: returns the receive, which stays, if it is of the
  // current key and all receives are exact; null: ask arrive().
  [[nodiscard, gnu::always_inline]] PostedReceive* awaits(std::uint64_t tag, Source source) const {
    return is_current(tag, source) && only_exact() ? current_ : nullptr;
  }
  void take_awaiting(PostedReceive* receive) { remove_current(receive); }
  void keep(KeptMessage* message);

  // True: the receive is removed and will match nothing. False: it is not stored (a message has
  // already taken it).
  bool cancel(PostedReceive* receive);

  // True: all posted receives are of whole tags from one worker.
  [[nodiscard]] bool only_exact() const { return (used_ & ~(1U << kWorkerTag)) == 0; }
  // For a receive that post() has just stored, while only_exact(): the receive before it of the
  // same tag and source; null: there is none.
  static PostedReceive* before(const PostedReceive* latest) {
    return latest->place[0].prev == latest ? nullptr : latest->place[0].prev;
  }

  // The earliest kept message that fits; it stays. Null: none fits.
  KeptMessage* probe(const Wanted& wanted);
  // Removes a kept message: one that probe() returned (the two calls make a probe with removal), or
  // any other.
  void take(KeptMessage* message);

  // Removes the receives that name a source for which dead(rank) holds, and the messages from such
  // sources. Receives from any source stay. It is one walk over everything, for any number of dead
  // ranks. The result is complete before the caller sees any of it, so completions that the caller
  // then runs may use this object.
  struct Removed {
    PostedReceive* receives = nullptr;  // in no order
    KeptMessage* messages = nullptr;    // in the order of arrival
  };
  template <class Dead>
  Removed forget(Dead dead);
  // Removes everything: the worker is being closed.
  Removed forget_all() {
    return remove_if([](Source) { return true; }, [](Source) { return true; });
  }
  // The next node of the chain. Call it before the node is handed over.
  static PostedReceive* after(const PostedReceive* removed) { return removed->place[0].next; }
  static KeptMessage* after(const KeptMessage* removed) { return removed->later; }

  // f(const PostedReceive&) in no order; f(const KeptMessage&) in the order of arrival. f may not
  // change this object.
  template <class F>
  void each_receive(F f) const;
  template <class F>
  void each_message(F f) const;

  // Counts those of the current key.
  [[nodiscard]] std::uint64_t receives() const;
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // For a debugger.
  void show(tap::DebugWorker& shown) const;
  // Nodes that all searches have looked at so far: the cost of the program's use of tags.
  [[nodiscard]] std::uint64_t visits() const { return visits_; }

 private:
  // Bits of a source that do not count are set both in a receive's source and in the key of a
  // message.
  struct Shape {
    std::uint64_t mask = kWholeTag;
    Source wild = 0;
    std::uint64_t salt = 0;
    std::uint64_t receives = 0;
  };
  static constexpr Shape kWorkerShape{kWholeTag, 0, 0, 0};  // whole tag, one worker
  static constexpr Shape kAnyShape{kWholeTag, kAnySource, 0, 0};
  // indices in shapes_; the other entries are assigned on demand
  static constexpr std::uint32_t kWorkerTag = 0;
  static constexpr std::uint32_t kAnyTag = 1;
  // values of a place's shape: the receive is in listed_; in current_
  static constexpr std::uint32_t kListed = kShapes;
  static constexpr std::uint32_t kCurrent = kShapes + 1;
  static constexpr std::uint64_t kFreeWalk = 64;  // walks over so few messages build no table
  // bits of used_
  static constexpr std::uint32_t kInTable = (1U << kShapes) - 1;
  static_assert(kListed < 32, "used_ has a bit for each");
  // any worker 0: no receive may ask for it, and no message comes from it
  static constexpr Source kNoSource = Source{kAnyNumber} << 32;

  [[nodiscard, gnu::always_inline]] std::uint32_t hash(std::uint64_t tag, Source source, std::uint64_t salt) const {
    return static_cast<std::uint32_t>((tag * tag_factor_ + source * source_factor_ + salt) >> 32);
  }
  [[nodiscard]] bool is_current(std::uint64_t tag, Source source) const {
    return tag == current_tag_ && source == current_source_;
  }
  void append_current(PostedReceive* receive) {
    receive->sequence = sequence_++;
    receive->place[0].shape = kCurrent;
    ring_append<0>(&current_, receive);
  }
  void remove_current(PostedReceive* receive) {
    current_ = ring_remove<0>(current_, receive);
    receive->place[0].shape = kNowhere;
  }
  KeptMessage* post_other(PostedReceive* receive);
  void store_exact(PostedReceive* receive);
  PostedReceive* arrive_other(std::uint64_t tag, Source source);
  static Source wild_of(Source source);
  std::uint32_t shape_for(std::uint64_t mask, Source wild);
  KeptMessage* post_wild(PostedReceive* receive);
  void store(PostedReceive* receive, std::uint32_t number);
  PostedReceive** find_posted(std::uint32_t at, std::uint64_t tag, Source source, std::uint32_t number);
  PostedReceive** find_for(std::uint64_t tag, Source source, std::uint32_t number);
  PostedReceive* arrive_among(std::uint64_t tag, Source source);
  PostedReceive* first_listed(std::uint64_t tag, Source source, std::uint64_t before);
  void append_listed(PostedReceive** list, PostedReceive* receive);
  void remove_listed(PostedReceive* receive);
  void note_listed() { used_ = (used_ & kInTable) | (listed_ != nullptr ? 1U << kListed : 0U); }
  void unposted(std::uint32_t shape);
  template <class OfReceive, class OfMessage>
  Removed remove_if(OfReceive of_receive, OfMessage of_message);
  void take_from_others(KeptMessage* message);
  KeptMessage* search(const Wanted& wanted, Source wild);
  KeptMessage* search_walking(const Wanted& wanted, Source wild);
  void fill_by_tag();
  void fill_other(std::uint64_t mask, Source wild);
  template <std::size_t kWhich>
  KeptMessage** find(KeyTable<KeptMessage, kWhich>* table, std::uint64_t tag, Source source, const Shape& shape);
  template <std::size_t kWhich>
  void add(KeyTable<KeptMessage, kWhich>* table, KeptMessage* message, const Shape& shape);

  std::uint64_t tag_factor_ = 0;  // odd, secret
  std::uint64_t source_factor_ = 0;
  // bit i: shapes_[i].receives != 0; bit kListed: listed_ != nullptr
  std::uint32_t used_ = 0;
  bool by_tag_filled_ = false;
  bool other_filled_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t listed_receives_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t visits_ = 0;
  std::uint64_t walked_ = 0;         // messages that walks looked at since other_ was last used
  PostedReceive* listed_ = nullptr;  // ring by place[0]
  // Ring by place[0], of this key; no receive of the key is in posted_.
  PostedReceive* current_ = nullptr;
  std::uint64_t current_tag_ = 0;
  Source current_source_ = kNoSource;
  KeptMessage* earliest_ = nullptr;  // list by earlier, later
  KeptMessage* latest_ = nullptr;
  std::array<Shape, kShapes> shapes_;
  Shape other_shape_;  // of other_
  KeyTable<PostedReceive, 0> posted_;
  KeyTable<KeptMessage, 0> by_worker_;  // (source, tag)
  KeyTable<KeptMessage, 1> by_tag_;     // by_tag_filled_
  KeyTable<KeptMessage, 2> other_;      // by other_shape_; other_filled_
};

// Called when a receive leaves the hash table: updates the counts.
inline void Matching::unposted(std::uint32_t shape) {
  if (--shapes_[shape].receives == 0) used_ &= ~(1U << shape);
}

template <class Dead>
Matching::Removed Matching::forget(Dead dead) {
  return remove_if([&dead](Source wanted) { return wanted != kAnySource && dead(rank_of(wanted)); },
                   [&dead](Source source) { return dead(rank_of(source)); });
}

template <class OfReceive, class OfMessage>
Matching::Removed Matching::remove_if(OfReceive of_receive, OfMessage of_message) {
  Removed removed;
  posted_.extract_keys(
      // the source is part of the key
      [&](const PostedReceive& leader) { return of_receive(leader.wanted.source); },
      [&](PostedReceive* receive, std::uint32_t shape) {
        unposted(shape);
        receive->place[0].next = removed.receives;
        removed.receives = receive;
      });
  while (current_ != nullptr && of_receive(current_source_)) {
    PostedReceive* const receive = current_;
    remove_current(receive);
    receive->place[0].next = removed.receives;
    removed.receives = receive;
  }
  PostedReceive* kept = nullptr;
  while (listed_ != nullptr) {
    PostedReceive* const receive = listed_;
    remove_listed(receive);
    if (of_receive(receive->wanted.source)) {
      receive->place[0].next = removed.receives;
      removed.receives = receive;
    } else {
      append_listed(&kept, receive);
    }
  }
  listed_ = kept;
  note_listed();
  KeptMessage* last = nullptr;
  for (KeptMessage *message = earliest_, *later = nullptr; message != nullptr; message = later) {
    later = message->later;
    if (!of_message(message->source)) continue;
    take(message);
    message->later = nullptr;
    (last == nullptr ? removed.messages : last->later) = message;
    last = message;
  }
  return removed;
}

template <class F>
void Matching::each_receive(F f) const {
  posted_.each(f);
  for (const PostedReceive* const head : {current_, listed_}) {
    const PostedReceive* receive = head;
    if (receive == nullptr) continue;
    do {
      f(*receive);
      receive = receive->place[0].next;
    } while (receive != head);
  }
}

template <class F>
void Matching::each_message(F f) const {
  for (const KeptMessage* message = earliest_; message != nullptr; message = message->later) f(*message);
}

}  // namespace heddle::protocol
