// The connections between the device workers, which are made once a peer's card has arrived and is
// valid, and the notes that leave through them.
#include <cstring>
#include <new>
#include <utility>

#include "base/fd.hpp"
#include "transport/network/device.hpp"
#include "transport/network/directory.hpp"

namespace heddle::transport::network {

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
  if (rank.refused != HEDDLE_DONE) return rank.refused;
  const base::Status status = introduce(rank);
  if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_NO_MEMORY || status == HEDDLE_ERR_PEER_FAILED) return status;
  if (status == HEDDLE_DONE) {
    rank.met = true;
    return status;
  }
  rank.refused = status;
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
    return disagree(names.window_setting, rank, theirs.window, device_.window());
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
