// Who asks whom for what: notes between the home workers.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "base/fd.hpp"
#include "transport/ucx/home.hpp"
#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// An address or a key that is longer is none.
constexpr std::uint32_t kMostNoteBytes = 64 << 10;
constexpr std::uint64_t kNewsNs =
    2'000'000'000;  // until a death is known: a second, and one more for a machine that others load

// A note on its way, as UCX hands it back.
struct Letter {
  Bytes bytes;
  std::uint32_t* sending;
  const Functions* call;
};

}  // namespace

Home::Peer& Home::peer(std::uint32_t rank) {
  auto& known = peers_[rank];
  if (known != nullptr) return *known;
  auto made = std::make_unique<Peer>();
  made->rank = rank;
  made->home = this;
  made->workers.resize(max_workers_);
  // The lists have room for all peers, so that nothing needs memory later.
  for (auto* list : {&talking_, &broken_}) make_room(list, known_peers_ + 1);
  make_room(&closing_, known_peers_ + 1);
  ++known_peers_;
  known = std::move(made);
  return *known;
}

base::Result<const Bytes*> Home::address(std::uint32_t rank, std::uint32_t worker) try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  const auto result = [](Known known, const Bytes& address) -> base::Result<const Bytes*> {
    if (known == Known::open) return &address;
    return known == Known::closed ? HEDDLE_ERR_STATE : HEDDLE_AGAIN;
  };
  if (rank == this->rank()) return result(own_[worker].known, own_[worker].address);
  if (failed(rank)) return HEDDLE_ERR_PEER_FAILED;
  Peer& asked = peer(rank);
  if (const base::Status status = meet(asked); status != HEDDLE_DONE) return status;
  Entry& entry = asked.workers[worker];
  if (entry.known == Known::nothing) {
    Note note;
    note.kind = Note::ask_worker;
    note.number = worker;
    say(rank, note, {});
    entry.known = Known::asked;
  }
  return result(entry.known, entry.address);
} catch (const std::bad_alloc&) {
  return HEDDLE_AGAIN;
}

bool Home::known_closed(std::uint32_t rank, std::uint32_t worker) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (rank == this->rank()) return own_[worker].known == Known::closed;
  return peers_[rank] != nullptr && peers_[rank]->workers[worker].known == Known::closed;
}

base::Result<Bytes> Home::key(std::uint64_t import, std::uint64_t generation) try {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  if (import >= imports_.size() || imports_[import].generation != generation) return HEDDLE_ERR_RANGE;
  Import& wanted = imports_[import];
  if (wanted.rank == rank()) {
    const auto found = regions_.find(wanted.id);
    if (found == regions_.end()) return HEDDLE_ERR_RANGE;
    return found->second.packed;
  }
  if (failed(wanted.rank)) return HEDDLE_ERR_PEER_FAILED;  // UCX 1.13 may not survive a key whose owner is gone
  if (wanted.known == Known::open) return wanted.packed;
  if (wanted.known == Known::closed) return HEDDLE_ERR_RANGE;
  if (wanted.known == Known::nothing) {
    if (const base::Status status = meet(peer(wanted.rank)); status != HEDDLE_DONE) return status;
    Note note;
    note.kind = Note::ask_key;
    note.number = wanted.id;
    say(wanted.rank, note, {});
    wanted.known = Known::asked;
  }
  return HEDDLE_AGAIN;
} catch (const std::bad_alloc&) {
  return HEDDLE_AGAIN;
}

// Its card, and a connection between the home workers.
base::Status Home::meet(Peer& peer) {
  if (peer.met) return HEDDLE_DONE;
  if (peer.refused != HEDDLE_DONE) return peer.refused;
  const base::Status status = introduce(peer);
  if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_NO_MEMORY || status == HEDDLE_ERR_PEER_FAILED) return status;
  if (status == HEDDLE_DONE) {
    peer.met = true;
    return status;
  }
  peer.refused = status;
  if (!std::exchange(version_told_, true)) {
    environment_.log.line(base::Level::error, "rank %u cannot be met: %s", peer.rank, base::last_message());
  }
  return status;
}

base::Status Home::check_versions(const CardHead& theirs, std::uint32_t rank) const {
  if (theirs.wire != kWireVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank %u has version %u of the ucx transport, this rank %u; use one Heddle in all ranks", rank,
                      theirs.wire, kWireVersion);
  }
  const std::string version(theirs.ucx, ::strnlen(theirs.ucx, sizeof theirs.ucx));
  const auto series = [](const std::string& of) { return of.substr(0, of.rfind('.')); };
  if (series(version) == series(library_->version())) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_VERSION,
                    "rank %u has UCX %s, this rank %s; use one UCX in all ranks (HEDDLE_UCX_LIBRARY)", rank,
                    version.c_str(), library_->version().c_str());
}

base::Status Home::introduce(Peer& peer) {
  const auto card = bootstrap_.fetch(peer.rank);
  if (!card) return card.status();
  const base::Fd fd(card->fd);  // of a rank with another transport
  CardHead theirs;
  const CardHead mine;
  const bool whole = card->bytes.size() > sizeof theirs;
  if (whole) std::memcpy(&theirs, card->bytes.data(), sizeof theirs);
  if (!whole || std::memcmp(theirs.tag, mine.tag, sizeof mine.tag) != 0) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u does not use the ucx transport; give all ranks the same HEDDLE_TRANSPORT", peer.rank);
  }
  if (const base::Status status = check_versions(theirs, peer.rank); status != HEDDLE_DONE) return status;
  if (theirs.address_bytes != card->bytes.size() - sizeof theirs) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has %zu bytes for an address of %llu", peer.rank,
                      card->bytes.size() - sizeof theirs, static_cast<unsigned long long>(theirs.address_bytes));
  }
  if (const base::Status status = check_agreed(theirs.agreed, agreed_, peer.rank); status != HEDDLE_DONE) return status;
  if (theirs.max_workers != max_workers_) {
    return disagree("HEDDLE_MAX_WORKERS", peer.rank, theirs.max_workers, max_workers_);
  }
  if (theirs.window != window_) return disagree("HEDDLE_UCX_WINDOW_BYTES", peer.rank, theirs.window, window_);

  return reach(peer, card->bytes.data() + sizeof theirs);
}

// There is no way to a rank that has just died either, and of that the bootstrap tells later: it gets time for it.
base::Status Home::reach(Peer& peer, const void* address) {
  const std::uint64_t now = environment_.clock->now_ns();
  if (peer.tried_since == 0) peer.tried_since = now;
  const bool last = now - peer.tried_since >= kNewsNs;
  std::optional<Library::Hush> hush;
  if (!last) hush.emplace();
  const ucs_status_t status = connect(worker_, address, on_broken, &peer, &peer.endpoint);
  if (status == UCS_OK) return HEDDLE_DONE;
  if (status == UCS_ERR_NO_MEMORY)
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a connection to rank %u", peer.rank);
  if (!last) return HEDDLE_AGAIN;
  return base::fail(HEDDLE_ERR_CONFIG, "UCX finds no way to rank %u: %s; look at HEDDLE_UCX_TLS and UCX_TLS", peer.rank,
                    call_.status_string(status));
}

void Home::say(std::uint32_t rank, Note note, const Bytes& bytes) {
  note.rank = this->rank();
  note.bytes = static_cast<std::uint32_t>(bytes.size());
  seal(&note, secret_);
  Bytes letter(sizeof note + bytes.size());
  std::memcpy(letter.data(), &note, sizeof note);
  if (!bytes.empty()) std::memcpy(letter.data() + sizeof note, bytes.data(), bytes.size());
  Peer& to = peer(rank);
  to.outbox.push_back(std::move(letter));
  if (to.outbox.size() == 1) talking_.push_back(&to);
  helper_.wake();  // nobody may poll for long, and no descriptor tells of it
}

// False: something stays there, for which there is no way yet, or no memory.
bool Home::empty_outbox(Peer& peer) try {
  const base::Status met = failed(peer.rank) ? HEDDLE_ERR_PEER_FAILED : meet(peer);
  if (met == HEDDLE_AGAIN || met == HEDDLE_ERR_NO_MEMORY) return false;
  if (met != HEDDLE_DONE || peer.endpoint == nullptr) {
    peer.outbox.clear();
    return true;
  }
  while (!peer.outbox.empty()) {
    auto letter = std::make_unique<Letter>(Letter{{}, &sending_, &call_});
    letter->bytes = std::move(peer.outbox.front());
    peer.outbox.pop_front();
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    params.cb.send = on_sent;
    params.user_data = letter.get();
    void* request =
        call_.am_send_nbx(peer.endpoint, kNoteId, nullptr, 0, letter->bytes.data(), letter->bytes.size(), &params);
    if (request == nullptr) continue;
    if (UCS_PTR_IS_ERR(request)) {
      on_broken(&peer, peer.endpoint, UCS_PTR_STATUS(request));
      return false;
    }
    ++sending_;
    static_cast<void>(letter.release());  // on_sent() takes it
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void Home::on_sent(void* request, ucs_status_t, void* user) {
  const std::unique_ptr<Letter> letter(static_cast<Letter*>(user));
  --*letter->sending;
  letter->call->request_free(request);
}

// Called within UCX's progress: the endpoint is closed afterwards.
void Home::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(arg);
  Home& home = *peer.home;
  if (home.unreachable_[peer.rank].exchange(true, std::memory_order_relaxed)) return;
  home.lose(peer.rank);
  const base::Level level = home.bootstrap_.failed(peer.rank) ? base::Level::debug : base::Level::info;
  home.environment_.log.line(level, "the connection to rank %u broke: %s", peer.rank, home.call_.status_string(status));
  home.broken_.push_back(&peer);
}

void Home::drop(Peer& peer) {
  peer.outbox.clear();
  if (peer.endpoint == nullptr || !recovers_) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = call_.ep_close_nbx(std::exchange(peer.endpoint, nullptr), &params);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) closing_.push_back(request);
}

ucs_status_t Home::on_note(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                           const ucp_am_recv_param_t* param) {
  Home& home = *static_cast<Home*>(arg);
  Note note;
  const bool here = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && header_bytes == 0 && bytes >= sizeof note;
  if (here) std::memcpy(&note, data, sizeof note);
  if (!here || !sealed(note, home.secret_) || note.rank >= home.size() || note.bytes != bytes - sizeof note ||
      note.bytes > kMostNoteBytes) {
    if (home.malformed_++ == 0) {
      home.environment_.log.line(base::Level::error, "a note of %zu bytes that no rank of this job wrote is ignored",
                                 bytes);
    }
    return UCS_OK;
  }
  try {
    home.read_note(note, static_cast<const std::byte*>(data) + sizeof note);
  } catch (const std::bad_alloc&) {
    home.put_off(note);
  }
  return UCS_OK;
}

// There is no memory for it now. A question is kept; an answer is asked for again.
[[gnu::cold]] void Home::put_off(const Note& note) {
  if (note.kind == Note::worker && peers_[note.rank] != nullptr) {
    Entry& entry = peers_[note.rank]->workers[note.number];
    if (entry.known == Known::asked) entry.known = Known::nothing;
  } else if (note.kind == Note::key) {
    for (Import& import : imports_) {
      if (import.known == Known::asked && import.rank == note.rank && import.id == note.number)
        import.known = Known::nothing;
    }
  } else if (unanswered_count_ < unanswered_.size()) {
    unanswered_[unanswered_count_++] = note;
    untold_ = true;
  } else {
    environment_.log.line(base::Level::error, "no memory for a note of rank %u: what it asks stays open", note.rank);
  }
}

void Home::read_note(const Note& note, const std::byte* data) {
  switch (note.kind) {
    case Note::ask_worker:
      return answer_worker(note);
    case Note::ask_key:
      return answer_key(note);
    case Note::worker:
      return learn_worker(note, data);
    case Note::key:
      return learn_key(note, data);
    default:
      ++malformed_;
  }
}

void Home::answer_worker(const Note& note) {
  if (note.number >= max_workers_) {
    ++malformed_;
    return;
  }
  Own& own = own_[note.number];
  if (std::ranges::find(own.asked, note.rank) == own.asked.end()) own.asked.push_back(note.rank);
  if (own.known == Known::nothing) return;
  Note answer;
  answer.kind = Note::worker;
  answer.number = note.number;
  answer.state = own.known == Known::open ? Note::is_open : Note::is_closed;
  say(note.rank, answer, own.address);
}

void Home::tell_those_who_asked(std::uint32_t worker) {
  own_[worker].untold = own_[worker].asked.size();
  untold_ = true;
  tell_the_untold();
}

// Who has asked, and the first `untold` of those who have asked for each worker. What there is no memory for is done the next time.
void Home::tell_the_untold() try {
  for (; unanswered_count_ != 0; --unanswered_count_) {
    const Note& note = unanswered_[unanswered_count_ - 1];
    note.kind == Note::ask_worker ? answer_worker(note) : answer_key(note);
  }
  for (std::uint32_t worker = 0; worker < max_workers_; ++worker) {
    Own& own = own_[worker];
    for (; own.untold != 0; --own.untold) {
      const std::uint32_t rank = own.asked[own.untold - 1];
      if (failed(rank)) continue;
      Note answer;
      answer.kind = Note::worker;
      answer.number = worker;
      answer.state = own.known == Known::open ? Note::is_open : Note::is_closed;
      say(rank, answer, own.address);
    }
  }
  untold_ = false;
} catch (const std::bad_alloc&) {
  untold_ = true;
}

void Home::answer_key(const Note& note) {
  Note answer;
  answer.kind = Note::key;
  answer.number = note.number;
  const auto found = regions_.find(note.number);
  answer.state = found == regions_.end() ? Note::is_unknown : Note::is_open;
  say(note.rank, answer, found == regions_.end() ? Bytes{} : found->second.packed);
}

void Home::learn_worker(const Note& note, const std::byte* data) {
  if (note.number >= max_workers_ || (note.state != Note::is_open && note.state != Note::is_closed)) {
    ++malformed_;
    return;
  }
  learned_ = true;
  Entry& entry = peer(note.rank).workers[note.number];
  if (note.state == Note::is_closed) {
    entry.known = Known::closed;
  } else if (entry.known == Known::asked && note.bytes != 0) {  // the address stays where it is once it is known
    entry.address.assign(data, data + note.bytes);
    entry.known = Known::open;
  }
}

void Home::learn_key(const Note& note, const std::byte* data) {
  const bool open = note.state == Note::is_open && note.bytes != 0;
  if (!open && note.state != Note::is_unknown) {
    ++malformed_;
    return;
  }
  learned_ = true;
  for (Import& import : imports_) {
    if (import.known != Known::asked || import.rank != note.rank || import.id != note.number) continue;
    if (open) import.packed.assign(data, data + note.bytes);
    import.known = open ? Known::open : Known::closed;
  }
}

void Home::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const bool some = work();
  if (!closed_.empty()) linger();
  // What was read here the helper hears of by nothing else; nor of what UCX may have begun by it and its descriptor does not tell.
  if (some || learned_ || !talking_.empty() || sending_ != 0) helper_.wake();
}

bool Home::work() {
  if (untold_) tell_the_untold();
  const bool some = call_.worker_progress(worker_) != 0 || !talking_.empty() || untold_;
  while (!broken_.empty()) {
    Peer& peer = *broken_.back();
    broken_.pop_back();
    drop(peer);
  }
  if (!talking_.empty()) {
    for (std::size_t i = 0; i < talking_.size(); ++i) static_cast<void>(empty_outbox(*talking_[i]));
    std::erase_if(talking_, [](const Peer* peer) { return peer->outbox.empty(); });
  }
  if (!closing_.empty()) {
    std::erase_if(closing_, [this](void* request) {
      if (call_.request_check_status(request) == UCS_INPROGRESS) return false;
      call_.request_free(request);
      return true;
    });
  }
  return some;
}

bool Home::has_unsent() const {
  return sending_ != 0 || std::ranges::any_of(talking_, [this](const Peer* peer) { return !failed(peer->rank); });
}

bool Home::linger() {
  bool moving = false;
  for (const auto& station : closed_) moving |= station->linger();
  return moving;
}

}  // namespace heddle::transport::ucx
