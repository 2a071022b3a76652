// The connections between the device workers, which are made once a peer's card has arrived and is
// valid, and the notes that leave through them.
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/fd.hpp"
#include "transport/ucx/device.hpp"
#include "transport/ucx/directory.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint64_t kNewsNs =
    2'000'000'000;  // until a death is known: a second, and one more for a machine under load
constexpr std::uint64_t kCloseNs = 2'000'000'000;

// A note on its way, as on_sent() gets it back from UCX.
struct Letter {
  Bytes bytes;
  Directory* from;
};

base::Status check_versions(const CardHead& theirs, std::uint32_t rank, const std::string& mine) {
  if (theirs.wire != kWireVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank %u has version %u of the ucx transport, this rank %u; use one Heddle in all ranks", rank,
                      theirs.wire, kWireVersion);
  }
  const std::string version(theirs.ucx, ::strnlen(theirs.ucx, sizeof theirs.ucx));
  const auto series = [](const std::string& of) { return of.substr(0, of.rfind('.')); };
  if (series(version) == series(mine)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_VERSION,
                    "rank %u has UCX %s, this rank %s; use one UCX in all ranks (HEDDLE_UCX_LIBRARY)", rank,
                    version.c_str(), mine.c_str());
}

}  // namespace

Directory::Peer& Directory::peer(std::uint32_t rank) {
  auto& known = peers_[rank];
  if (known != nullptr) return *known;
  auto made = std::make_unique<Peer>();
  made->rank = rank;
  made->directory = this;
  made->workers.resize(own_.size());
  // The lists have room for all peers, so that nothing needs memory later.
  for (auto* list : {&talking_, &broken_}) make_room(list, known_peers_ + 1);
  make_room(&closing_, known_peers_ + 1);
  ++known_peers_;
  known = std::move(made);
  return *known;
}

// Fetches its card, and connects the device workers.
base::Status Directory::meet(Peer& peer) {
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
    device_.log().line(base::Level::error, "rank %u cannot be met: %s", peer.rank, base::last_message());
  }
  return status;
}

base::Status Directory::introduce(Peer& peer) {
  const auto card = device_.bootstrap().fetch(peer.rank);
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
  if (const auto status = check_versions(theirs, peer.rank, device_.library().version()); status != HEDDLE_DONE)
    return status;
  if (theirs.address_bytes != card->bytes.size() - sizeof theirs) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has %zu bytes for an address of %llu", peer.rank,
                      card->bytes.size() - sizeof theirs, static_cast<unsigned long long>(theirs.address_bytes));
  }
  if (const auto status = check_agreed(theirs.agreed, device_.agreed(), peer.rank); status != HEDDLE_DONE)
    return status;
  if (theirs.max_workers != device_.max_workers()) {
    return disagree("HEDDLE_MAX_WORKERS", peer.rank, theirs.max_workers, device_.max_workers());
  }
  if (theirs.window != device_.window()) {
    return disagree("HEDDLE_UCX_WINDOW_BYTES", peer.rank, theirs.window, device_.window());
  }
  return reach(peer, card->bytes.data() + sizeof theirs);
}

// A rank that has just died cannot be reached either, and the bootstrap reports that later: this
// gives it time for that.
base::Status Directory::reach(Peer& peer, const void* address) {
  const std::uint64_t now = device_.environment().clock->now_ns();
  if (peer.tried_since == 0) peer.tried_since = now;
  const bool last = now - peer.tried_since >= kNewsNs;
  std::optional<Library::Hush> hush;
  if (!last) hush.emplace();
  const ucs_status_t status = device_.connect(worker_, address, on_broken, &peer, &peer.endpoint);
  if (status == UCS_OK) return HEDDLE_DONE;
  if (status == UCS_ERR_NO_MEMORY)
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a connection to rank %u", peer.rank);
  if (!last) return HEDDLE_AGAIN;
  return base::fail(HEDDLE_ERR_CONFIG, "UCX finds no way to rank %u: %s; look at HEDDLE_UCX_TLS and UCX_TLS", peer.rank,
                    call_.status_string(status));
}

void Directory::say(std::uint32_t rank, Note note, const Bytes* bytes) {
  note.rank = device_.rank();
  note.bytes = bytes != nullptr ? static_cast<std::uint32_t>(bytes->size()) : 0;
  seal(&note, device_.secret());
  Bytes letter(sizeof note + note.bytes);
  std::memcpy(letter.data(), &note, sizeof note);
  if (note.bytes != 0) std::memcpy(letter.data() + sizeof note, bytes->data(), note.bytes);
  Peer& to = peer(rank);
  to.outbox.push_back(std::move(letter));
  if (to.outbox.size() == 1) talking_.push_back(&to);
  device_.helper().wake();  // perhaps nobody polls for long, and no descriptor reports it
}

// False: something stays there, because there is no connection yet, or no memory.
bool Directory::empty_outbox(Peer& peer) try {
  const base::Status met = device_.failed(peer.rank) ? HEDDLE_ERR_PEER_FAILED : meet(peer);
  if (met == HEDDLE_AGAIN || met == HEDDLE_ERR_NO_MEMORY) return false;
  if (met != HEDDLE_DONE || peer.endpoint == nullptr) {
    peer.outbox.clear();
    return true;
  }
  while (!peer.outbox.empty()) {
    auto letter = std::make_unique<Letter>(Letter{{}, this});
    letter->bytes = std::move(peer.outbox.front());
    peer.outbox.pop_front();
    void* request =
        send_message(call_, peer.endpoint, kNoteId, letter->bytes.data(), letter->bytes.size(), on_sent, letter.get());
    if (request == nullptr) continue;
    if (UCS_PTR_IS_ERR(request)) {
      on_broken(&peer, peer.endpoint, UCS_PTR_STATUS(request));
      return false;
    }
    ++sending_;
    static_cast<void>(letter.release());  // on_sent() frees it
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void Directory::on_sent(void* request, ucs_status_t, void* user) {
  const std::unique_ptr<Letter> letter(static_cast<Letter*>(user));
  --letter->from->sending_;
  letter->from->call_.request_free(request);
}

// Called within UCX's progress: the endpoint is closed afterwards.
void Directory::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  Peer& peer = *static_cast<Peer*>(arg);
  Directory& self = *peer.directory;
  if (self.device_.losses().lose_device(peer.rank)) return;
  const base::Level level = self.device_.bootstrap().failed(peer.rank) ? base::Level::debug : base::Level::info;
  self.device_.log().line(level, "the connection to rank %u broke: %s", peer.rank, self.call_.status_string(status));
  self.broken_.push_back(&peer);
}

void Directory::drop(Peer& peer) {
  peer.outbox.clear();
  if (peer.endpoint == nullptr || !device_.recovers()) return;
  void* request = force_close(call_, std::exchange(peer.endpoint, nullptr));
  if (request != nullptr) closing_.push_back(request);
}

void Directory::end() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) drop(*peer);
  }
  base::Clock& clock = *device_.environment().clock;
  const std::uint64_t until = clock.now_ns() + kCloseNs;
  while (!closing_.empty() && clock.now_ns() < until) work();
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace heddle::transport::ucx
