#include "transport/joint/joint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "bootstrap/common.hpp"
#include "transport/agreed.hpp"
#include "transport/joint/parts.hpp"

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
                      "HEDDLE_UCX_TLS or HEDDLE_NET_DEVICES name fewer",
                      settings.names[0].c_str(), head.bytes[0], settings.names[1].c_str(), head.bytes[1],
                      bootstrap::kMaxCardBytes - sizeof head);
  }
  card.bytes.resize(sizeof head);
  std::memcpy(card.bytes.data(), &head, sizeof head);
  card.bytes.insert(card.bytes.end(), parts.begin(), parts.end());
  if (objects->of[0] != nullptr || objects->of[1] != nullptr) card.object = std::move(objects);
  return whole.publish(card);
}

std::size_t Port::post_portion(std::span<Command> portion, std::size_t way) {
  const std::size_t taken = inner_[way]->post(portion);
  if (way == 1) {
    warm_up();
    for (const Command& command : portion.first(taken)) far_under_way_ += command.done ? 0 : 1;
  }
  return taken;
}

// Portions for one transport each, so that the accepted commands are a prefix.
void Port::post_portions(std::span<Command> batch, std::size_t* accepted) {
  while (*accepted < batch.size()) {
    if (too_long(batch[*accepted])) [[unlikely]] {
      const base::Status status =
          base::fail(HEDDLE_ERR_SIZE, "a message is longer than %u bytes, the most of both transports", max_message_);
      if (!rejected_.reject(batch[*accepted], status)) return;
      alone_ = 0;
      ++*accepted;
      continue;
    }
    const std::size_t way = way_to(batch[*accepted].rank);
    std::size_t end = *accepted + 1;
    while (end < batch.size() && way_to(batch[end].rank) == way && !too_long(batch[end])) ++end;
    *accepted += post_portion(batch.subspan(*accepted, end - *accepted), way);
    if (*accepted != end) return;
  }
}

// If a portion runs out of memory, the portions before it are still reported as accepted.
std::size_t Port::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    post_portions(batch, &accepted);
  } catch (const std::bad_alloc&) {
    if (accepted == 0) throw;
  }
  return accepted;
}

bool Port::far_is_due() {
  if (warm_ > 0) --warm_;
  if (warm_ > 0 || far_under_way_ > 0) return true;
  const std::uint64_t now = clock_.now_ns();
  // Polls in quick succession do not need the clock each.
  alone_ = now - seen_ns_ < kColdNs ? kGlance - 1 : 0;
  seen_ns_ = now;
  skipped_ += alone_ + 1;
  if (now - looked_ns_ < cold_ns_ && skipped_ < kLongest) return false;
  looked_ns_ = now;
  skipped_ = 0;
  timed_ = true;
  return true;
}

// True only after a poll that has found nothing in both transports. A caller that gets false may
// poll for long before it tries again, so each of the next polls polls FAR (warm_).
bool Port::arm() {
  if (!rejected_.empty()) return false;
  warm_ = std::max(warm_, far_polled_ ? kAwake : kWarm);
  alone_ = 0;
  return far_polled_ && inner_[0]->arm() && inner_[1]->arm();
}

std::size_t Port::poll_far(std::span<Completion> completions) {
  const std::size_t count = inner_[1]->poll(completions);
  for (const Completion& completion : completions.first(count)) {
    far_under_way_ -= completion.ends();
  }
  if (count > 0) {
    warm_up();
  } else if (timed_) {
    cold_ns_ = std::clamp(kShare * (clock_.now_ns() - looked_ns_), kColdNs, kColdestNs);
  }
  timed_ = false;
  return count;
}

// The completions that were fetched are reported even if the poll that follows runs out of memory.
template <class Poll>
std::size_t Port::and_then(std::size_t count, Poll&& poll) {
  try {
    return count + poll();
  } catch (const std::bad_alloc&) {
    if (count == 0) throw;
    return count;
  }
}

// The transport that is polled second gets the room that the first has left; so each is first every
// other time.
std::size_t Port::poll_both(std::span<Completion> completions) {
  far_polled_ = far_is_due();
  if (!far_polled_) return inner_[0]->poll(completions);
  far_first_ = !far_first_;
  const std::size_t first = far_first_ ? poll_far(completions) : inner_[0]->poll(completions);
  const std::span<Completion> rest = completions.subspan(first);
  if (rest.empty()) return first;
  return and_then(first, [&] { return far_first_ ? inner_[0]->poll(rest) : poll_far(rest); });
}

std::size_t Port::poll(std::span<Completion> completions) {
  if (alone_ == 0) [[unlikely]]
    return poll_seldom(completions);
  --alone_;
  far_polled_ = false;
  return inner_[0]->poll(completions);
}

[[gnu::noinline]] std::size_t Port::poll_seldom(std::span<Completion> completions) {
  if (rejected_.empty()) [[likely]] {
    return poll_both(completions);
  }
  const std::size_t told = rejected_.drain(completions);
  return told == completions.size() ? told : and_then(told, [&] { return poll_both(completions.subspan(told)); });
}

namespace {

constexpr std::size_t kNear = 0;
constexpr std::size_t kFar = 1;
constexpr std::size_t kPartBytes = kWideKeyBytes / kWays;

class Joint final : public Transport {
 public:
  Joint(const TransportRow& near, const TransportRow& far, bootstrap::Bootstrap& bootstrap,
        const base::Environment& environment);

  ~Joint() override { bootstrap_.set_bell(nullptr); }

  base::Status open(const TransportRow& near, const TransportRow& far);

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const char* way_to(std::uint32_t rank) const override { return of(rank).way_to(rank); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override { return of(rank).direct_to(rank); }
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override { return of(rank).lost(rank); }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const override { return of(rank).disconnected(rank); }
  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return of(rank).check_peer(rank); }
  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override;
  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override;
  void free(const LocalMemory& memory) override;
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override;
  [[nodiscard]] base::Result<LocalMemory> register_for(std::uint32_t rank, void* address, std::uint64_t bytes) override;
  void deregister(const LocalMemory& memory) override;
  [[nodiscard]] base::Result<LocalMemory> adopt(void* address, std::uint64_t bytes) override;
  [[nodiscard]] MemoryKey key_for(std::uint32_t rank, const WideKey& key) const override;
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    return of(rank).try_import(rank, key);
  }
  [[nodiscard]] bool imports_late(std::uint32_t rank) const override { return of(rank).imports_late(rank); }
  void prepare_import(std::uint32_t rank) override { of(rank).prepare_import(rank); }
  // Both get their cards by one bootstrap.
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return inner_[kNear]->card_bell(); }
  void release(const RemoteMemory& memory) override { of(memory.rank).release(memory); }
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() override;
  // Both ring NEAR's bell.
  [[nodiscard]] std::uint32_t bell() override { return inner_[kNear]->bell(); }
  // Only ranks that NEAR reaches can store into memory here.
  [[nodiscard]] bool arm_stores() override { return inner_[kNear]->arm_stores(); }
  [[nodiscard]] std::optional<queue::BellPull> stores_bell(std::uint32_t rank) override {
    return way(rank) == kNear ? inner_[kNear]->stores_bell(rank) : std::nullopt;
  }
  void settle() override {
    for (const auto& transport : inner_) transport->settle();
  }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    inner_[kNear]->wait(seen, timeout_ns, places);
  }
  void ring() override { inner_[kNear]->ring(); }

 private:
  // The parts of memory that is registered with one of the two, or with both.
  using Parts = std::array<const LocalMemory*, kWays>;

  [[nodiscard]] std::size_t way(std::uint32_t rank) const { return rank < ways_.size() ? ways_[rank] : kNear; }
  [[nodiscard]] Transport& of(std::uint32_t rank) const { return *inner_[way(rank)]; }
  base::Status combine_capabilities();
  base::Result<LocalMemory> add_far(base::Result<LocalMemory> near);
  static LocalMemory together(const Parts& parts);
  static LocalMemory part_of(const LocalMemory& memory, std::size_t way);
  static bool has_part(const LocalMemory& memory, std::size_t way);

  bootstrap::Bootstrap& bootstrap_;
  const base::Environment& environment_;
  Settings settings_;
  std::string name_;
  std::vector<std::uint8_t> ways_;  // by rank
  std::array<Share, kWays> shares_;
  std::array<std::unique_ptr<Transport>, kWays> inner_;  // destroyed before their shares
  Capabilities capabilities_;
};

Joint::Joint(const TransportRow& near, const TransportRow& far, bootstrap::Bootstrap& bootstrap,
             const base::Environment& environment)
    : bootstrap_(bootstrap),
      environment_(environment),
      settings_{{near.name, far.name},
                environment.config.number(base::Var::node_ranks),
                bootstrap::nodes_of(bootstrap, environment.config.number(base::Var::node_ranks))},
      name_(std::string(near.name) + "," + far.name),
      ways_(bootstrap.size()),
      shares_{Share(bootstrap, settings_, kNear), Share(bootstrap, settings_, kFar)} {
  for (std::uint32_t rank = 0; rank < ways_.size(); ++rank) {
    const bool here = settings_.nodes[rank] == settings_.nodes[bootstrap.rank()];
    ways_[rank] = static_cast<std::uint8_t>(here ? kNear : kFar);
  }
}

base::Status Joint::open(const TransportRow& near, const TransportRow& far) {
  const std::array<const TransportRow*, kWays> entries = {&near, &far};
  for (std::size_t way = 0; way < kWays; ++way) {
    auto opened = entries[way]->open(shares_[way], environment_);
    if (!opened) return opened.status();
    inner_[way] = std::move(*opened);
    if (way == kNear) shares_[kFar].set_common_bell(shares_[kNear].bell());
  }
  bootstrap_.set_bell(shares_[kNear].bell());
  if (const base::Status status = combine_capabilities(); status != HEDDLE_DONE) return status;
  return publish_both(bootstrap_, settings_, shares_[kNear], shares_[kFar]);
}

base::Status Joint::combine_capabilities() {
  const Capabilities& near = inner_[kNear]->capabilities();
  const Capabilities& far = inner_[kFar]->capabilities();
  for (const Capabilities* can : {&near, &far}) {
    if (can->key_bytes <= kPartBytes) continue;
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s cannot be joined with another transport: its keys have %u bytes, and %zu go in", can->name,
                      can->key_bytes, kPartBytes);
  }
  // 0: it has no such commands.
  const auto least = [](std::uint64_t a, std::uint64_t b) {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
  };
  capabilities_.name = name_.c_str();
  // of some memory: each region says what it accepts
  capabilities_.opcodes = near.opcodes | far.opcodes;
  capabilities_.direct = near.direct || far.direct;
  capabilities_.copies_messages = near.copies_messages && far.copies_messages;
  capabilities_.ordered_messages = near.ordered_messages && far.ordered_messages;
  capabilities_.max_message = std::min(near.max_message, far.max_message);
  capabilities_.max_transfer = least(near.max_transfer, far.max_transfer);
  capabilities_.fetch_bytes = std::max(near.fetch_bytes, far.fetch_bytes);
  capabilities_.max_workers = std::min(near.max_workers, far.max_workers);
  static_assert(Sleeping::impossible < Sleeping::fenced && Sleeping::fenced < Sleeping::free);
  capabilities_.sleeping = std::min(near.sleeping, far.sleeping);
  capabilities_.one_thread = near.one_thread || far.one_thread;
  capabilities_.memory_per_peer = std::max(near.memory_per_peer, far.memory_per_peer);
  capabilities_.key_bytes = kWideKeyBytes;
  return HEDDLE_DONE;
}

std::string Joint::describe() const {
  const auto near = std::count(ways_.begin(), ways_.end(), std::uint8_t{kNear});
  return std::to_string(near) + " ranks of this node by " + inner_[kNear]->describe() + "; " +
         std::to_string(static_cast<long>(ways_.size()) - near) + " others by " + inner_[kFar]->describe();
}

base::Result<std::unique_ptr<TransportWorker>> Joint::open_worker(std::uint32_t index) {
  std::array<std::unique_ptr<TransportWorker>, kWays> workers;
  for (std::size_t way = 0; way < kWays; ++way) {
    auto opened = inner_[way]->open_worker(index);
    if (!opened) return opened.status();
    workers[way] = std::move(*opened);
  }
  return std::unique_ptr<TransportWorker>(
      std::make_unique<Port>(std::move(workers), ways_, capabilities_.max_message, *environment_.clock));
}

// ---- memory: what the two know of it, in one record

LocalMemory Joint::together(const Parts& parts) {
  LocalMemory memory;
  for (std::size_t way = 0; way < kWays; ++way) {
    const LocalMemory* part = parts[way];
    if (part == nullptr) continue;
    memory.address = part->address;
    memory.bytes = part->bytes;
    (way == kNear ? memory.id : memory.second_id) = part->id;
    std::copy_n(part->key.bytes.begin(), kPartBytes, memory.key.bytes.begin() + way * kPartBytes);
  }
  return memory;
}

LocalMemory Joint::part_of(const LocalMemory& memory, std::size_t way) {
  LocalMemory part;
  part.address = memory.address;
  part.bytes = memory.bytes;
  part.id = way == kNear ? memory.id : memory.second_id;
  std::copy_n(memory.key.bytes.begin() + way * kPartBytes, kPartBytes, part.key.bytes.begin());
  return part;
}

// A key is never all zeros.
bool Joint::has_part(const LocalMemory& memory, std::size_t way) {
  const auto begin = memory.key.bytes.begin() + way * kPartBytes;
  return std::any_of(begin, begin + kPartBytes, [](std::byte byte) { return byte != std::byte{0}; });
}

MemoryKey Joint::key_for(std::uint32_t rank, const WideKey& key) const {
  MemoryKey narrow;
  std::copy_n(key.bytes.begin() + way(rank) * kPartBytes, kPartBytes, narrow.bytes.begin());
  return narrow;
}

base::Result<LocalMemory> Joint::allocate(std::uint64_t bytes) {
  auto near = inner_[kNear]->allocate(bytes);
  if (!near) return near.status();
  const auto far = inner_[kFar]->register_memory(near->address, near->bytes);
  if (far) return together({&*near, &*far});
  inner_[kNear]->free(*near);
  return far.status();
}

void Joint::free(const LocalMemory& memory) {
  inner_[kFar]->deregister(part_of(memory, kFar));
  inner_[kNear]->free(part_of(memory, kNear));
}

base::Result<LocalMemory> Joint::register_memory(void* address, std::uint64_t bytes) {
  return add_far(inner_[kNear]->register_memory(address, bytes));
}

base::Result<LocalMemory> Joint::adopt(void* address, std::uint64_t bytes) {
  return add_far(inner_[kNear]->adopt(address, bytes));
}

// FAR registers the memory last and deregisters it first: it may hold the pages that NEAR has put
// there.
base::Result<LocalMemory> Joint::add_far(base::Result<LocalMemory> near) {
  if (!near) return near.status();
  const auto far = inner_[kFar]->register_memory(near->address, near->bytes);
  if (far) return together({&*near, &*far});
  inner_[kNear]->deregister(*near);
  return far.status();
}

base::Result<LocalMemory> Joint::register_for(std::uint32_t rank, void* address, std::uint64_t bytes) {
  auto part = of(rank).register_for(rank, address, bytes);
  if (!part) return part.status();
  Parts parts{};
  parts[way(rank)] = &*part;
  return together(parts);
}

void Joint::deregister(const LocalMemory& memory) {
  for (const std::size_t way : {kFar, kNear}) {
    if (has_part(memory, way)) inner_[way]->deregister(part_of(memory, way));
  }
}

// Every rank has such a word, so there are words only if all ranks are near.
std::span<std::atomic<std::uint64_t>> Joint::common_words() {
  const bool all_near = std::all_of(ways_.begin(), ways_.end(), [](std::uint8_t way) { return way == kNear; });
  if (!all_near) return {};
  return inner_[kNear]->common_words();
}

}  // namespace

base::Result<std::unique_ptr<Transport>> open(const TransportRow& near, const TransportRow& far,
                                              bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  if (far.one_node) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s reaches ranks of its own node only, and ranks are on others (or HEDDLE_NODE_RANKS says so); "
                      "name another transport behind the comma of HEDDLE_TRANSPORTS",
                      far.name);
  }
  auto joint = std::make_unique<Joint>(near, far, bootstrap, environment);
  if (const base::Status status = joint->open(near, far); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Transport>(std::move(joint));
}

}  // namespace heddle::transport::joint
