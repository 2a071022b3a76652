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
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace heddle::engine {

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

}  // namespace heddle::engine
