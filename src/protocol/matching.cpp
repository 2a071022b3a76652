#include "protocol/matching.hpp"

namespace heddle::protocol {

namespace {

// SplitMix64 (Steele, Lea, Flood 2014): derives several secret words from one.
std::uint64_t next_secret(std::uint64_t* state) {
  std::uint64_t z = (*state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
  return z ^ z >> 31;
}

bool fits(const Wanted& wanted, Source wild, std::uint64_t tag, Source source) {
  return ((wanted.tag ^ tag) & wanted.mask) == 0 && (source | wild) == (wanted.source | wild);
}

}  // namespace

Matching::Matching(Options options)
    : posted_(options.max_buckets),
      by_worker_(options.max_buckets),
      by_tag_(options.max_buckets),
      other_(options.max_buckets) {
  std::uint64_t state = options.seed;
  tag_factor_ = next_secret(&state) | 1;
  source_factor_ = next_secret(&state) | 1;
  for (Shape& shape : shapes_) shape.salt = next_secret(&state);
  shapes_[kAnyTag].wild = kAnyShape.wild;
}

Source Matching::wild_of(Source source) {
  if (static_cast<std::uint32_t>(source) != kAnyNumber) [[likely]]
    return 0;
  return rank_of(source) == kAnyNumber ? kAnySource : std::uint64_t{kAnyNumber};
}

template <std::size_t kWhich>
[[gnu::always_inline]] inline KeptMessage** Matching::find(KeyTable<KeptMessage, kWhich>* table, std::uint64_t tag,
                                                           Source source, const Shape& shape) {
  const std::uint64_t key_tag = tag & shape.mask;
  const Source key_source = source | shape.wild;
  return table->find(hash(key_tag, key_source, 0), &visits_, [&](const KeptMessage& leader) {
    return (leader.tag & shape.mask) == key_tag && (leader.source | shape.wild) == key_source;
  });
}

template <std::size_t kWhich>
[[gnu::always_inline]] inline void Matching::add(KeyTable<KeptMessage, kWhich>* table, KeptMessage* message,
                                                 const Shape& shape) {
  KeptMessage** const link = find(table, message->tag, message->source, shape);
  table->add(link, message, hash(message->tag & shape.mask, message->source | shape.wild, 0), 0);
}

// ---- receives -----------------------------------------------------------------------------------

[[gnu::always_inline]] inline PostedReceive** Matching::find_posted(std::uint32_t at, std::uint64_t tag, Source source,
                                                                    std::uint32_t number) {
  return posted_.find(at, &visits_, [=](const PostedReceive& leader) {
    return leader.wanted.tag == tag && leader.wanted.source == source && leader.place[0].shape == number;
  });
}

// The link to the earliest receive of that shape which fits the message.
[[gnu::always_inline]] inline PostedReceive** Matching::find_for(std::uint64_t tag, Source source,
                                                                 std::uint32_t number) {
  const Shape& shape = shapes_[number];
  const std::uint64_t key_tag = tag & shape.mask;
  const Source key_source = source | shape.wild;
  return find_posted(hash(key_tag, key_source, shape.salt), key_tag, key_source, number);
}

[[gnu::always_inline]] inline void Matching::store(PostedReceive* receive, std::uint32_t number) {
  const Wanted& wanted = receive->wanted;
  Shape& shape = shapes_[number];
  receive->sequence = sequence_++;
  ++shape.receives;
  used_ |= 1U << number;
  const std::uint32_t at = hash(wanted.tag, wanted.source, shape.salt);
  posted_.add(find_posted(at, wanted.tag, wanted.source, number), receive, at, number);
}

// The receive is of a whole tag from one worker.
void Matching::store_exact(PostedReceive* receive) {
  const Wanted& wanted = receive->wanted;
  if (is_current(wanted.tag, wanted.source)) return append_current(receive);
  Shape& shape = shapes_[kWorkerTag];
  const std::uint32_t at = hash(wanted.tag, wanted.source, shape.salt);
  PostedReceive** const link = find_posted(at, wanted.tag, wanted.source, kWorkerTag);
  if (current_ == nullptr && *link == nullptr) {
    current_tag_ = wanted.tag;
    current_source_ = wanted.source;
    return append_current(receive);
  }
  receive->sequence = sequence_++;
  ++shape.receives;
  used_ |= 1U << kWorkerTag;
  posted_.add(link, receive, at, kWorkerTag);
}

KeptMessage* Matching::post_other(PostedReceive* receive) {
  const Wanted& wanted = receive->wanted;
  if (wanted.mask == kWholeTag && static_cast<std::uint32_t>(wanted.source) != kAnyNumber) [[likely]] {
    if (messages_ != 0) {
      KeptMessage** const link = find(&by_worker_, wanted.tag, wanted.source, kWorkerShape);
      if (*link != nullptr) {
        KeptMessage* const message = *link;
        by_worker_.remove_leader(link);
        take_from_others(message);
        return message;
      }
    }
    store_exact(receive);
    return nullptr;
  }
  return post_wild(receive);
}

KeptMessage* Matching::post_wild(PostedReceive* receive) {
  receive->wanted.tag &= receive->wanted.mask;
  const Source wild = wild_of(receive->wanted.source);
  KeptMessage* const message = messages_ == 0 ? nullptr : search(receive->wanted, wild);
  if (message != nullptr) {
    take(message);
    return message;
  }
  const std::uint32_t number = shape_for(receive->wanted.mask, wild);
  if (number == kListed) {
    receive->sequence = sequence_++;
    append_listed(&listed_, receive);
    note_listed();
  } else {
    store(receive, number);
  }
  return nullptr;
}

// The number of the shape with that mask and wild. If none has them, a free number; if no number is
// free, kListed.
std::uint32_t Matching::shape_for(std::uint64_t mask, Source wild) {
  if (mask == kWholeTag && wild == kAnySource) return kAnyTag;
  constexpr std::uint32_t kFixed = 1U << kWorkerTag | 1U << kAnyTag;
  for (std::uint32_t left = used_ & kInTable & ~kFixed; left != 0; left &= left - 1) {
    const auto number = static_cast<std::uint32_t>(std::countr_zero(left));
    if (shapes_[number].mask == mask && shapes_[number].wild == wild) return number;
  }
  const auto free = static_cast<std::uint32_t>(std::countr_one(used_ | kFixed));
  if (free >= kShapes) return kListed;
  shapes_[free].mask = mask;
  shapes_[free].wild = wild;
  return free;
}

PostedReceive* Matching::arrive_other(std::uint64_t tag, Source source) {
  const std::uint32_t used = used_;
  const bool several = (used & (used - 1)) != 0 || (used & ~kInTable) != 0;
  if (several || (current_ != nullptr && is_current(tag, source))) return arrive_among(tag, source);
  if (used == 0) return nullptr;
  const auto number = static_cast<std::uint32_t>(std::countr_zero(used));
  PostedReceive** const link = find_for(tag, source, number);
  PostedReceive* const receive = *link;
  if (receive == nullptr) return nullptr;
  unposted(number);
  posted_.remove_leader(link);
  return receive;
}

// For receives of several shapes.
PostedReceive* Matching::arrive_among(std::uint64_t tag, Source source) {
  PostedReceive* const current = current_ != nullptr && is_current(tag, source) ? current_ : nullptr;
  PostedReceive** best = nullptr;
  std::uint64_t before = current == nullptr ? ~0ULL : current->sequence;
  for (std::uint32_t left = used_ & kInTable; left != 0; left &= left - 1) {
    PostedReceive** const link = find_for(tag, source, static_cast<std::uint32_t>(std::countr_zero(left)));
    if (*link != nullptr && (*link)->sequence < before) {
      best = link;
      before = (*link)->sequence;
    }
  }
  PostedReceive* const listed = first_listed(tag, source, before);
  if (listed != nullptr) {
    remove_listed(listed);
    note_listed();
    return listed;
  }
  if (best == nullptr) {
    if (current != nullptr) remove_current(current);
    return current;
  }
  PostedReceive* const receive = *best;
  unposted(receive->place[0].shape);
  posted_.remove_leader(best);
  return receive;
}

bool Matching::cancel(PostedReceive* receive) {
  const std::uint32_t shape = receive->place[0].shape;
  if (shape == kNowhere) return false;
  if (shape == kCurrent) {
    remove_current(receive);
  } else if (shape == kListed) {
    remove_listed(receive);
    note_listed();
  } else {
    unposted(shape);
    posted_.remove(receive, &visits_);
  }
  return true;
}

void Matching::append_listed(PostedReceive** list, PostedReceive* receive) {
  ring_append<0>(list, receive);
  receive->place[0].shape = kListed;
  ++listed_receives_;
}

void Matching::remove_listed(PostedReceive* receive) {
  listed_ = ring_remove<0>(listed_, receive);
  receive->place[0].shape = kNowhere;
  --listed_receives_;
}

// The first listed receive that fits, if its number is lower than `before`; the list is in the
// order of posting.
PostedReceive* Matching::first_listed(std::uint64_t tag, Source source, std::uint64_t before) {
  PostedReceive* receive = listed_;
  if (receive == nullptr) return nullptr;
  do {
    if (receive->sequence > before) return nullptr;
    ++visits_;
    if (fits(receive->wanted, wild_of(receive->wanted.source), tag, source)) return receive;
    receive = receive->place[0].next;
  } while (receive != listed_);
  return nullptr;
}

// ---- unexpected messages ------------------------------------------------------------------------

void Matching::keep(KeptMessage* message) {
  message->earlier = latest_;
  message->later = nullptr;
  (latest_ == nullptr ? earliest_ : latest_->later) = message;
  latest_ = message;
  ++messages_;
  bytes_ += message->bytes;
  add(&by_worker_, message, kWorkerShape);
  if (by_tag_filled_) add(&by_tag_, message, kAnyShape);
  if (other_filled_) add(&other_, message, other_shape_);
}

void Matching::take(KeptMessage* message) {
  by_worker_.remove(message, &visits_);
  take_from_others(message);
}

// The message has left by_worker_: removes it from everything else.
void Matching::take_from_others(KeptMessage* message) {
  (message->earlier == nullptr ? earliest_ : message->earlier->later) = message->later;
  (message->later == nullptr ? latest_ : message->later->earlier) = message->earlier;
  --messages_;
  bytes_ -= message->bytes;
  if (by_tag_filled_) by_tag_.remove(message, &visits_);
  if (other_filled_) other_.remove(message, &visits_);
}

std::uint64_t Matching::receives() const {
  std::uint64_t sum = listed_receives_;
  if (const PostedReceive* receive = current_; receive != nullptr) {
    do {
      ++sum;
      receive = receive->place[0].next;
    } while (receive != current_);
  }
  for (const Shape& shape : shapes_) sum += shape.receives;
  return sum;
}

KeptMessage* Matching::probe(const Wanted& wanted) {
  return messages_ == 0 ? nullptr : search(wanted, wild_of(wanted.source));
}

KeptMessage* Matching::search(const Wanted& wanted, Source wild) {
  if (wanted.mask == kWholeTag && wild == 0) [[likely]] {
    return *find(&by_worker_, wanted.tag, wanted.source, kWorkerShape);
  }
  if (wanted.mask == kWholeTag && wild == kAnySource) {
    if (!by_tag_filled_) fill_by_tag();
    return *find(&by_tag_, wanted.tag, wanted.source, kAnyShape);
  }
  if (other_filled_ && other_shape_.mask == wanted.mask && other_shape_.wild == wild) {
    walked_ = 0;
    return *find(&other_, wanted.tag, wanted.source, other_shape_);
  }
  return search_walking(wanted, wild);
}

KeptMessage* Matching::search_walking(const Wanted& wanted, Source wild) {
  std::uint64_t looked_at = 0;
  KeptMessage* message = earliest_;
  while (message != nullptr) {
    ++looked_at;
    if (fits(wanted, wild, message->tag, message->source)) break;
    message = message->later;
  }
  visits_ += looked_at;
  walked_ += looked_at;
  if (walked_ > messages_ + kFreeWalk) fill_other(wanted.mask, wild);
  return message;
}

void Matching::fill_by_tag() {
  by_tag_filled_ = true;
  for (KeptMessage* message = earliest_; message != nullptr; message = message->later) {
    add(&by_tag_, message, kAnyShape);
  }
}

void Matching::fill_other(std::uint64_t mask, Source wild) {
  other_.clear();
  other_filled_ = true;
  walked_ = 0;
  other_shape_.mask = mask;
  other_shape_.wild = wild;
  for (KeptMessage* message = earliest_; message != nullptr; message = message->later) {
    add(&other_, message, other_shape_);
  }
}

void Matching::show(tap::DebugWorker& shown) const {
  static const PostedReceive receive;
  static const KeptMessage message;
  static const std::array receive_fields{tap::debug_field("tag", receive, receive.wanted.tag),
                                         tap::debug_field("mask", receive, receive.wanted.mask),
                                         tap::debug_field("source", receive, receive.wanted.source)};
  static const std::array message_fields{tap::debug_field("tag", message, message.tag),
                                         tap::debug_field("source", message, message.source)};
  tap::DebugRows rows{};
  rows.name = "receives";
  rows.fields = receive_fields.data();
  rows.field_count = receive_fields.size();
  rows.link = tap::debug_field("", receive, receive.place[0].next).offset;
  rows.chain = tap::debug_field("", receive, receive.place[0].chain).offset;
  rows.shape = tap::DebugShape::ring;
  rows.first = static_cast<const void*>(&current_);
  shown.row(rows);
  rows.first = static_cast<const void*>(&listed_);
  shown.row(rows);
  rows.shape = tap::DebugShape::table;
  rows.first = posted_.shown_buckets();
  rows.count = &posted_.shown_count();
  shown.row(rows);
  rows = {};
  rows.name = "messages";
  rows.fields = message_fields.data();
  rows.field_count = message_fields.size();
  rows.shape = tap::DebugShape::list;
  rows.link = tap::debug_field("", message, message.later).offset;
  rows.first = static_cast<const void*>(&earliest_);
  shown.row(rows);
}

}  // namespace heddle::protocol
