#include "transport/joint/share.hpp"

#include <algorithm>
#include <cstring>

#include "base/fd.hpp"
#include "transport/agreed.hpp"

namespace heddle::transport::joint {
namespace {

// The beginning of a card. The parts follow.
struct Head {
  char tag[16] = {'h', 'e', 'd', 'd', 'l', 'e', ' ', 'j', 'o', 'i', 'n', 't', ' ', '1'};
  std::array<std::array<char, 24>, kWays> names{};  // ended by a zero
  std::uint64_t node_ranks = 0;
  std::array<std::uint32_t, kWays> bytes{};
  std::uint32_t descriptor_of = kWays;  // kWays: of neither
  std::uint32_t zero = 0;
};
static_assert(sizeof(Head) == 16 + 48 + 8 + 16);

// Objects of ranks of the same process.
struct Objects {
  std::array<std::shared_ptr<void>, kWays> of;
};

std::string name_of(const std::array<char, 24>& name) {
  return {name.begin(), std::find(name.begin(), name.end(), '\0')};
}

base::Result<Head> read_head(const bootstrap::Card& card, const Settings& mine, std::uint32_t rank) {
  Head head;
  const Head model;
  const bool whole = card.bytes.size() >= sizeof head;
  if (whole) std::memcpy(&head, card.bytes.data(), sizeof head);
  if (!whole || std::memcmp(head.tag, model.tag, sizeof head.tag) != 0) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u does not use %s for its own node and %s for others, as this rank does; give all ranks "
                      "the same HEDDLE_TRANSPORT, HEDDLE_TRANSPORTS and HEDDLE_NODE_RANKS",
                      rank, mine.names[0].c_str(), mine.names[1].c_str());
  }
  if (head.descriptor_of > kWays || std::uint64_t{head.bytes[0]} + head.bytes[1] != card.bytes.size() - sizeof head) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u is damaged", rank);
  }
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::string theirs = name_of(head.names[way]);
    if (theirs == mine.names[way]) continue;
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u reaches ranks of %s by \"%s\", this rank by %s; give all ranks the same "
                      "HEDDLE_TRANSPORTS",
                      rank, way == 0 ? "its own node" : "other nodes", theirs.c_str(), mine.names[way].c_str());
  }
  if (head.node_ranks != mine.node_ranks) return disagree("HEDDLE_NODE_RANKS", rank, head.node_ranks, mine.node_ranks);
  return head;
}

}  // namespace

base::Status Share::publish(const bootstrap::Card& card) {
  if (published_)
    return base::fail(HEDDLE_ERR_STATE, "%s has published its card already", settings_.names[way_].c_str());
  published_ = true;
  card_ = card;
  return HEDDLE_DONE;
}

base::Result<bootstrap::Card> Share::fetch(std::uint32_t rank) {
  // Both ranks must use the same transport here, so one that shows no descriptor needs none of the
  // other.
  auto whole = card_.fd >= 0 ? whole_.fetch(rank) : whole_.fetch_bytes(rank);
  if (!whole) return whole.status();
  base::Fd fd(whole->fd);
  const auto head = read_head(*whole, settings_, rank);
  if (!head) return head.status();
  bootstrap::Card card;
  card.pid = whole->pid;
  const auto* begin = whole->bytes.data() + sizeof(Head) + (way_ == 0 ? 0 : head->bytes[0]);
  card.bytes.assign(begin, begin + head->bytes[way_]);
  if (head->descriptor_of == way_) card.fd = fd.release();
  if (whole->object != nullptr) card.object = static_cast<const Objects*>(whole->object.get())->of[way_];
  return card;
}

base::Status Share::exchange_start(std::span<const std::byte>) {
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "a transport cannot exchange among the ranks of the job");
}

base::Status Share::exchange_test(std::vector<std::vector<std::byte>>*) {
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "a transport cannot exchange among the ranks of the job");
}

base::Status publish_both(bootstrap::Bootstrap& whole, const Settings& settings, const Share& near, const Share& far) {
  const std::array<const bootstrap::Card*, kWays> cards = {&near.card(), &far.card()};
  if (cards[0]->fd >= 0 && cards[1]->fd >= 0) {
    return base::fail(HEDDLE_ERR_CONFIG, "%s and %s both show their peers a descriptor, and a rank can show one",
                      settings.names[0].c_str(), settings.names[1].c_str());
  }
  Head head;
  head.node_ranks = settings.node_ranks;
  bootstrap::Card card;
  card.pid = cards[0]->pid;
  auto objects = std::make_shared<Objects>();
  std::vector<std::byte> parts;
  for (std::size_t way = 0; way < kWays; ++way) {
    const std::string& name = settings.names[way];
    std::copy_n(name.begin(), std::min(name.size(), head.names[way].size() - 1), head.names[way].begin());
    head.bytes[way] = static_cast<std::uint32_t>(cards[way]->bytes.size());
    parts.insert(parts.end(), cards[way]->bytes.begin(), cards[way]->bytes.end());
    objects->of[way] = cards[way]->object;
    if (cards[way]->fd < 0) continue;
    head.descriptor_of = static_cast<std::uint32_t>(way);
    card.fd = cards[way]->fd;
    card.pid = cards[way]->pid;
  }
  if (sizeof head + parts.size() > bootstrap::kMaxCardBytes) {
    return base::fail(HEDDLE_ERR_SIZE,
                      "what %s (%u bytes) and %s (%u bytes) tell their peers is more than a card takes, %zu; let "
                      "HEDDLE_UCX_TLS or HEDDLE_UCX_NET_DEVICES name fewer",
                      settings.names[0].c_str(), head.bytes[0], settings.names[1].c_str(), head.bytes[1],
                      bootstrap::kMaxCardBytes - sizeof head);
  }
  card.bytes.resize(sizeof head);
  std::memcpy(card.bytes.data(), &head, sizeof head);
  card.bytes.insert(card.bytes.end(), parts.begin(), parts.end());
  if (objects->of[0] != nullptr || objects->of[1] != nullptr) card.object = std::move(objects);
  return whole.publish(card);
}

}  // namespace heddle::transport::joint
