// The directory: contact with ranks; the notes that ask, and their answers.
#include "transport/network/directory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/fd.hpp"
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

// The connections between the device workers, which are made once a peer's card has arrived and is
// valid, and the notes that leave through them.

Directory::Rank& Directory::known(std::uint32_t rank) {
  auto& known = ranks_[rank];
  if (known != nullptr) return *known;
  auto made = std::make_unique<Rank>();
  made->rank = rank;
  made->workers.resize(own_.size());
  // The lists have room for all ranks, so that nothing needs memory later.
  for (auto* list : {&talking_, &broken_}) make_room(list, known_ranks_ + 1);
  ++known_ranks_;
  known = std::move(made);
  return *known;
}

base::Status Directory::meet(std::uint32_t rank) try {
  return device_.failed(rank) ? HEDDLE_ERR_PEER_FAILED : meet(known(rank));
} catch (const std::bad_alloc&) {
  return HEDDLE_ERR_NO_MEMORY;
}

// Fetches its card, and connects the device workers.
base::Status Directory::meet(Rank& rank) {
  if (rank.met) return HEDDLE_DONE;
  if (rank.rejected != HEDDLE_DONE) return rank.rejected;
  const base::Status status = introduce(rank);
  if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_NO_MEMORY || status == HEDDLE_ERR_PEER_FAILED) return status;
  if (status == HEDDLE_DONE) {
    rank.met = true;
    return status;
  }
  rank.rejected = status;
  device_.lose(rank.rank);  // ends everything that waits for the rank, such as a receive
  if (!std::exchange(version_told_, true)) {
    device_.log().line(base::Level::error, "rank %u cannot be met: %s", rank.rank, base::last_message());
  }
  return status;
}

base::Status Directory::introduce(const Rank& rank) {
  const auto card = device_.bootstrap().fetch(rank.rank);
  if (!card) return card.status();
  const base::Fd fd(card->fd);  // of a rank with another transport
  if (const base::Status status = check(*card, rank.rank); status != HEDDLE_DONE) return status;
  return courier_.connect(rank.rank, std::span(card->bytes).subspan(sizeof(CardHead)));
}

base::Status Directory::check(std::uint32_t rank) {
  if (rank == device_.rank()) return HEDDLE_DONE;
  const auto card = device_.bootstrap().fetch_bytes(rank);
  if (!card) return card.status();
  const std::lock_guard lock(mutex_);
  return check(*card, rank);
}

base::Status Directory::check(const bootstrap::Card& card, std::uint32_t rank) const {
  const Device::Names& names = device_.names();
  CardHead theirs;
  const CardHead mine;
  const bool whole = card.bytes.size() > sizeof theirs;
  if (whole) std::memcpy(&theirs, card.bytes.data(), sizeof theirs);
  if (!whole || std::memcmp(theirs.tag, mine.tag, sizeof mine.tag) != 0 ||
      std::strncmp(theirs.transport, names.transport, sizeof theirs.transport) != 0) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u does not use the %s transport; give all ranks the same HEDDLE_TRANSPORT and "
                      "HEDDLE_TRANSPORTS",
                      rank, names.transport);
  }
  if (theirs.wire != kWireVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank %u has version %u of the %s transport, this rank %u; use one Heddle in all ranks", rank,
                      theirs.wire, names.transport, kWireVersion);
  }
  theirs.version[sizeof theirs.version - 1] = theirs.provider[sizeof theirs.provider - 1] = '\0';
  if (const auto status = courier_.check_card(theirs, rank); status != HEDDLE_DONE) return status;
  if (theirs.address_bytes != card.bytes.size() - sizeof theirs) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has %zu bytes for an address of %llu", rank,
                      card.bytes.size() - sizeof theirs, static_cast<unsigned long long>(theirs.address_bytes));
  }
  if (const auto status = check_agreed(theirs.agreed, device_.agreed(), rank); status != HEDDLE_DONE) return status;
  if (theirs.max_workers != device_.max_workers()) {
    return disagree("HEDDLE_MAX_WORKERS", rank, theirs.max_workers, device_.max_workers());
  }
  if (theirs.window != device_.window()) {
    return disagree("HEDDLE_NETWORK_WINDOW_BYTES", rank, theirs.window, device_.window());
  }
  return HEDDLE_DONE;
}

void Directory::say(std::uint32_t rank, Note note, const Bytes* bytes) {
  note.rank = device_.rank();
  note.bytes = bytes != nullptr ? static_cast<std::uint32_t>(bytes->size()) : 0;
  seal(&note, device_.secret());
  Bytes whole(sizeof note + note.bytes);
  std::memcpy(whole.data(), &note, sizeof note);
  if (note.bytes != 0) std::memcpy(whole.data() + sizeof note, bytes->data(), note.bytes);
  Rank& to = known(rank);
  to.outbox.push_back(std::move(whole));
  if (to.outbox.size() == 1) talking_.push_back(&to);
  device_.helper().wake();  // perhaps nobody polls for long, and no descriptor reports it
}

// False: something stays there, because there is no connection yet, or no memory.
bool Directory::empty_outbox(Rank& rank) try {
  const base::Status met = device_.failed(rank.rank) ? HEDDLE_ERR_PEER_FAILED : meet(rank);
  if (met == HEDDLE_AGAIN || met == HEDDLE_ERR_NO_MEMORY) return false;
  if (met != HEDDLE_DONE) {
    rank.outbox.clear();
    return true;
  }
  while (!rank.outbox.empty()) {
    const base::Status sent = courier_.send(rank.rank, &rank.outbox.front());
    if (sent == HEDDLE_AGAIN) return false;
    if (sent != HEDDLE_DONE) {
      rank.outbox.clear();
      return true;
    }
    rank.outbox.pop_front();
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Called within the library's progress: the connection is closed afterwards.
void Directory::broken(std::uint32_t rank, const char* why) {
  if (device_.losses().lose_device(rank)) return;
  const base::Level level = device_.bootstrap().failed(rank) ? base::Level::debug : base::Level::info;
  device_.log().line(level, "the connection to rank %u broke: %s", rank, why);
  broken_.push_back(ranks_[rank].get());
}

void Directory::drop(Rank& rank) {
  rank.outbox.clear();
  courier_.disconnect(rank.rank);
}

void Directory::disconnect_all() {
  for (const auto& rank : ranks_) {
    if (rank != nullptr) drop(*rank);
  }
}

}  // namespace heddle::transport::network
