// The directory's knowledge of workers and keys, and the notes that ask for them and report them;
// the connections between the device workers are in contact.cpp.
#include "transport/network/directory.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/network/device.hpp"

namespace heddle::transport::network {
namespace {

// A longer address or key is not valid.
constexpr std::uint32_t kMostNoteBytes = 64 << 10;
// How many notes to one rank may wait to leave, for each worker that the rank may have. Beyond
// that, its questions are not answered, and it asks again.
constexpr std::size_t kMostWaiting = 8;

}  // namespace

Directory::Directory(Device& device, Courier& courier, KeyShelf* keys)
    : device_(device),
      mutex_(device.mutex()),
      courier_(courier),
      keys_(keys),
      ranks_(device.size()),
      own_(device.max_workers()) {}

// ---- workers of this rank -----------------------------------------------------------------------

base::Status Directory::take_number(std::uint32_t worker) {
  if (worker >= own_.size()) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u; HEDDLE_MAX_WORKERS allows 0 to %zu", worker, own_.size() - 1);
  }
  const std::lock_guard lock(mutex_);
  if (std::exchange(own_[worker].taken, true)) {
    return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", worker);
  }
  return HEDDLE_DONE;
}

void Directory::announce(std::uint32_t worker, Bytes address) {
  const std::lock_guard lock(mutex_);
  own_[worker].address = std::move(address);
  own_[worker].known = Known::open;
  tell_those_who_asked(worker);
}

void Directory::close(std::uint32_t worker) {
  own_[worker].known = Known::closed;  // its address stays where it is: see address()
  tell_those_who_asked(worker);
}

void Directory::tell_those_who_asked(std::uint32_t worker) {
  own_[worker].unnotified = own_[worker].asked.size();
  unnotified_ = true;
  notify_the_rest();
}

// Answers the kept questions. For each worker, tells those ranks that have asked and do not know
// the answer yet. If there is no memory for an answer, it is sent the next time.
void Directory::notify_the_rest() try {
  for (; unanswered_count_ != 0; --unanswered_count_) answer(unanswered_[unanswered_count_ - 1]);
  for (std::uint32_t worker = 0; worker < own_.size(); ++worker) {
    Own& own = own_[worker];
    for (; own.unnotified != 0; --own.unnotified) {
      const std::uint32_t rank = own.asked[own.unnotified - 1];
      if (!device_.failed(rank)) tell_state(rank, worker);
    }
  }
  unnotified_ = false;
} catch (const std::bad_alloc&) {
  unnotified_ = true;
}

void Directory::tell_state(std::uint32_t rank, std::uint32_t worker) {
  const Own& own = own_[worker];
  say(rank,
      {.kind = Note::worker, .number = worker, .state = own.known == Known::open ? Note::is_open : Note::is_closed},
      own.known == Known::open ? &own.address : nullptr);
}

// ---- questions ----------------------------------------------------------------------------------

base::Result<const Bytes*> Directory::address(std::uint32_t rank, std::uint32_t worker) try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  if (rank == device_.rank()) return own_[worker].result();
  if (device_.failed(rank)) return HEDDLE_ERR_PEER_FAILED;
  Rank& asked = known(rank);
  if (const base::Status status = meet(asked); status != HEDDLE_DONE) return status;
  Entry& entry = asked.workers[worker];
  if (entry.known == Known::nothing) {
    say(rank, {.kind = Note::ask_worker, .number = worker});
    entry.known = Known::asked;
  }
  return entry.result();
} catch (const std::bad_alloc&) {
  return HEDDLE_AGAIN;
}

base::Status Directory::tell(std::uint32_t rank, std::uint32_t worker, std::span<const std::byte> bytes) try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  if (rank == device_.rank()) {
    if (courier_.handshake(rank, worker, bytes.data(), static_cast<std::uint32_t>(bytes.size()))) {
      learned_ = true;
      device_.helper().wake();  // its worker may sleep
    }
  } else {
    const Bytes copy(bytes.begin(), bytes.end());
    say(rank, {.kind = Note::handshake, .number = worker}, &copy);
  }
  return HEDDLE_DONE;
} catch (const std::bad_alloc&) {
  return HEDDLE_AGAIN;
}

bool Directory::known_closed(std::uint32_t rank, std::uint32_t worker) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (rank == device_.rank()) return own_[worker].known == Known::closed;
  return ranks_[rank] != nullptr && ranks_[rank]->workers[worker].known == Known::closed;
}

void Directory::forget_questions() {
  for (const auto& rank : ranks_) {
    if (rank == nullptr) continue;
    for (Entry& entry : rank->workers) {
      if (entry.known == Known::asked) entry.known = Known::nothing;
    }
  }
}

base::Status Directory::ask_key(std::uint32_t rank, std::uint64_t region) {
  if (const base::Status status = meet(known(rank)); status != HEDDLE_DONE) return status;
  say(rank, {.kind = Note::ask_key, .number = region});
  return HEDDLE_DONE;
}

// ---- notes that come ----------------------------------------------------------------------------

bool Directory::note(const std::byte* data, std::size_t bytes) {
  Note note;
  const bool whole = bytes >= sizeof note;
  if (whole) std::memcpy(&note, data, sizeof note);
  if (!whole || !sealed(note, device_.secret()) || note.rank >= device_.size() || note.bytes != bytes - sizeof note ||
      note.bytes > kMostNoteBytes) {
    if (malformed_++ == 0) {
      device_.log().line(base::Level::error, "a note of %zu bytes that no rank of this job wrote is ignored", bytes);
    }
    return true;
  }
  try {
    read(note, data + sizeof note);
  } catch (const std::bad_alloc&) {
    return put_off(note);
  }
  return true;
}

void Directory::read(const Note& note, const std::byte* data) {
  if (note.kind == Note::ask_worker || (note.kind == Note::ask_key && keys_ != nullptr)) return answer(note);
  if (note.kind == Note::worker) return learn_worker(note, data);
  if (note.kind == Note::key && keys_ != nullptr) return learn_key(note, data);
  if (note.kind == Note::handshake && note.number < own_.size() &&
      courier_.handshake(note.rank, static_cast<std::uint32_t>(note.number), data, note.bytes)) {
    learned_ = true;
    return;
  }
  ++malformed_;
}

// There is no memory for the note now. A question is kept; an answer is asked for again. False: it
// must come again.
[[gnu::cold]] bool Directory::put_off(const Note& note) {
  if (note.kind == Note::handshake) return false;
  if (note.kind == Note::worker && ranks_[note.rank] != nullptr) {
    Entry& entry = ranks_[note.rank]->workers[note.number];
    if (entry.known == Known::asked) entry.known = Known::nothing;
  } else if (note.kind == Note::key) {
    keys_->ask_again(note.rank, note.number);
  } else if ((note.kind == Note::ask_worker || note.kind == Note::ask_key) && unanswered_count_ < unanswered_.size()) {
    unanswered_[unanswered_count_++] = note;
    unnotified_ = true;
  } else {
    device_.log().line(base::Level::error, "no memory for a note of rank %u: what it asks stays open", note.rank);
  }
  return true;
}

void Directory::answer(const Note& note) {
  if (known(note.rank).outbox.size() > kMostWaiting * own_.size()) return;
  note.kind == Note::ask_worker ? answer_worker(note) : answer_key(note);
}

void Directory::answer_worker(const Note& note) {
  if (note.number >= own_.size()) {
    ++malformed_;
    return;
  }
  Own& own = own_[note.number];
  if (std::ranges::find(own.asked, note.rank) == own.asked.end()) own.asked.push_back(note.rank);
  if (own.known != Known::nothing) tell_state(note.rank, static_cast<std::uint32_t>(note.number));
}

void Directory::answer_key(const Note& note) {
  const Bytes* packed = keys_->packed(note.number);
  const std::uint32_t state = packed == nullptr ? Note::is_unknown : Note::is_open;
  say(note.rank, {.kind = Note::key, .number = note.number, .state = state}, packed);
}

void Directory::learn_worker(const Note& note, const std::byte* data) {
  if (note.number >= own_.size() || (note.state != Note::is_open && note.state != Note::is_closed)) {
    ++malformed_;
    return;
  }
  learned_ = true;
  Entry& entry = known(note.rank).workers[note.number];
  if (note.state == Note::is_closed) {
    entry.known = Known::closed;
  } else if (entry.known == Known::asked && note.bytes != 0) {
    // the address stays where it is once it is known
    entry.address.assign(data, data + note.bytes);
    entry.known = Known::open;
  }
}

void Directory::learn_key(const Note& note, const std::byte* data) {
  const bool open = note.state == Note::is_open && note.bytes != 0;
  if (!open && note.state != Note::is_unknown) {
    ++malformed_;
    return;
  }
  learned_ = true;
  keys_->learn(note.rank, note.number, open ? data : nullptr, note.bytes);
}

// ---- progress -----------------------------------------------------------------------------------

bool Directory::work() {
  if (unnotified_) notify_the_rest();
  const bool some = courier_.progress() || !talking_.empty() || unnotified_;
  while (!broken_.empty()) {
    Rank& rank = *broken_.back();
    broken_.pop_back();
    drop(rank);
  }
  if (!talking_.empty()) {
    for (std::size_t i = 0; i < talking_.size(); ++i) static_cast<void>(empty_outbox(*talking_[i]));
    std::erase_if(talking_, [](const Rank* rank) { return rank->outbox.empty(); });
  }
  return some;
}

bool Directory::has_unsent() const {
  return courier_.sending() ||
         std::ranges::any_of(talking_, [this](const Rank* rank) { return !device_.failed(rank->rank); });
}

}  // namespace heddle::transport::network
