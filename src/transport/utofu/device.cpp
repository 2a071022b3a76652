#include "transport/utofu/device.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <utility>

#include "base/wait.hpp"
#include "memory/registration_cache.hpp"

namespace heddle::transport::utofu {

std::uint64_t seal_of(const void* bytes, std::size_t count, const bootstrap::JobSecret& secret) {
  std::uint64_t keys[2];
  static_assert(sizeof keys == sizeof secret);
  std::memcpy(keys, secret.data(), sizeof keys);
  std::uint64_t sum = keys[0];
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + i, std::min<std::size_t>(8, count - i));
    sum = (sum ^ word) * 0xBF58476D1CE4E5B9ULL;
    sum ^= sum >> 29;
  }
  sum = (sum ^ keys[1]) * 0x94D049BB133111EBULL;
  return sum ^ sum >> 31;
}

// ---- Pages --------------------------------------------------------------------------------------

base::Result<Pages> Pages::create(std::uint64_t bytes) {
  // No MAP_NORESERVE: registered memory is pinned on the machine.
  void* address = bytes == 0 || bytes > std::uint64_t{1} << 46
                      ? MAP_FAILED
                      : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a region of %llu bytes",
                      static_cast<unsigned long long>(bytes));
  }
  // A fork must not make pinned pages copy-on-write while the NIC uses them.
  madvise(address, bytes, MADV_DONTFORK);
  Pages pages;
  pages.data_ = static_cast<std::byte*>(address);
  pages.bytes_ = bytes;
  return pages;
}
Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

static std::shared_ptr<memory::UnmapWatch> told_watch(const base::Environment& environment) {
  const auto options = memory::RegistrationCache::Options::from(environment.config);
  return options.watch ? nullptr : memory::RegistrationCache::watch_for(options, environment.log);
}

// ---- set-up -------------------------------------------------------------------------------------

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Library& library)
    : bootstrap_(bootstrap),
      environment_(environment),
      library_(&library),
      max_workers_(static_cast<std::uint32_t>(environment.config.number(base::Var::max_workers))),
      mrq_depth_(environment.config.number(base::Var::utofu_mrq_depth)),
      most_exclusive_(environment.config.number(base::Var::utofu_exclusive)),
      secret_(bootstrap.secret()),
      agreed_(agreed_of(environment.config)),
      watch_(told_watch(environment)),
      lost_(bootstrap.size()),
      peers_(bootstrap.size()),
      used_(max_workers_),
      stags_(kStags) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  auto library = Library::open(environment.config.text(base::Var::library_utofu));
  if (!library) return library.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, **library));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = open_ports(); status != HEDDLE_DONE) return status;
  auto pages = Pages::create(max_workers_ * sizeof(DirectoryEntry));
  if (!pages) return pages.status();
  directory_ = std::move(*pages);
  {
    const CqGuard guard(vcq_);
    auto stadd = library_->register_memory(vcq_, directory_.data(), directory_.bytes());
    if (!stadd) return stadd.status();
    directory_stadd_ = *stadd;
  }
  CardBytes bytes;
  bytes.max_workers = max_workers_;
  bytes.ports = own_ports();
  bytes.mrq_depth = mrq_depth_;
  bytes.directory_stadd = directory_stadd_;
  bytes.agreed = agreed_;
  bootstrap::Card card;
  card.bytes.resize(sizeof bytes);
  std::memcpy(card.bytes.data(), &bytes, sizeof bytes);
  return bootstrap_.publish(card);
}

// At most max_workers_ ports: a peer has no more workers than that to use them.
base::Status Device::open_ports() {
  auto device = library_->create(0, false);
  if (!device) return device.status();
  vcq_ = *device;
  ports_.push_back(vcq_);
  const std::size_t wanted = std::min({library_->tnis(), std::size_t{max_workers_}, kMostPorts});
  while (ports_.size() < wanted) {
    auto port = library_->create_behind(vcq_, ports_.size());
    if (!port) break;  // no VCQ is left: we take fewer ports
    ports_.push_back(*port);
  }
  return HEDDLE_DONE;
}

Ports Device::own_ports() const {
  Ports ports;
  for (const Vcq& port : ports_) ports.vcq[ports.count++] = port.id;
  return ports;
}

void Device::release(OwnVcq& own_vcq) {
  {
    const CqGuard guard(own_vcq.vcq);
    library_->deregister(own_vcq.vcq, own_vcq.stadd);
  }
  library_->destroy(own_vcq.vcq);
}

Device::~Device() {
  for (auto& own_vcq : kept_) release(*own_vcq);
  if (vcq_.handle == 0) return;
  for (auto& [id, region] : regions_) deregister(region);
  if (directory_stadd_ != 0) {
    const CqGuard guard(vcq_);
    library_->deregister(vcq_, directory_stadd_);
  }
  for (const Vcq& port : ports_) library_->destroy(port);
}

// ---- peers --------------------------------------------------------------------------------------

base::Result<const PeerProcess*> Device::peer(std::uint32_t rank) {
  const PeerProcess* known = peers_[rank].load(std::memory_order_acquire);
  if (known != nullptr) return known;
  return meet(rank);
}

// Each of the two would write to itself.
[[gnu::cold]] static base::Status fail_apart(std::uint32_t mine, std::uint32_t theirs, utofu_vcq_id_t vcq) {
  return base::fail(
      HEDDLE_ERR_CONFIG,
      "ranks %u and %u have the same VCQ %llx: they are not on one Tofu machine, each has an emulated one of "
      "its own; start the job with heddle run --utofu SHAPE",
      mine, theirs, static_cast<unsigned long long>(vcq));
}

base::Status Device::check_peer(std::uint32_t rank) {
  return rank == this->rank() ? HEDDLE_DONE : read_card(rank).status();
}

// The card of another rank, once it is here; it fits this rank's settings.
[[gnu::cold]] base::Result<CardBytes> Device::read_card(std::uint32_t rank) {
  const auto card = bootstrap_.fetch(rank);
  if (!card) return card.status();
  CardBytes bytes;
  if (card->bytes.size() != sizeof bytes) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u shows no card of the utofu transport", rank);
  }
  std::memcpy(&bytes, card->bytes.data(), sizeof bytes);
  if (bytes.magic != CardBytes::kMagic) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u shows no card of this utofu transport; same version?", rank);
  }
  base::Status status = check_agreed(bytes.agreed, agreed_, rank);
  if (bytes.max_workers != max_workers_) status = disagree("HEDDLE_MAX_WORKERS", rank, bytes.max_workers, max_workers_);
  if (bytes.mrq_depth != mrq_depth_) status = disagree("HEDDLE_UTOFU_MRQ_DEPTH", rank, bytes.mrq_depth, mrq_depth_);
  if (bytes.ports.count == 0 || bytes.ports.count > kMostPorts) {
    status = base::fail(HEDDLE_ERR_PROTOCOL, "rank %u shows %llu ports of the utofu transport", rank,
                        static_cast<unsigned long long>(bytes.ports.count));
  }
  // Both VCQs exist, so on one machine they have different ids.
  if (bytes.ports.vcq[0] == vcq_.id) status = fail_apart(this->rank(), rank, vcq_.id);
  if (status != HEDDLE_DONE) return status;
  return bytes;
}

// Also called with a CQ's lock held: so it does not wait for the mutex, and nobody waits for a CQ's
// lock while holding the mutex.
[[gnu::cold]] base::Result<const PeerProcess*> Device::meet(std::uint32_t rank) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  if (const PeerProcess* known = peers_[rank].load(std::memory_order_relaxed)) return known;
  auto peer = std::make_unique<PeerProcess>();
  peer->rank = rank;
  peer->ports = own_ports();
  peer->directory_stadd = directory_stadd_;
  if (rank != this->rank()) {
    const auto card = read_card(rank);
    if (!card) {
      const bool differs = card.status() == HEDDLE_ERR_VERSION || card.status() == HEDDLE_ERR_CONFIG ||
                           card.status() == HEDDLE_ERR_PROTOCOL;
      if (differs && !std::exchange(version_told_, true)) {
        environment_.log.line(base::Level::error, "rank %u cannot be met: %s", rank, base::last_message());
      }
      return card.status();
    }
    peer->ports = card->ports;
    peer->directory_stadd = card->directory_stadd;
  }
  met_.push_back(std::move(peer));
  peers_[rank].store(met_.back().get(), std::memory_order_release);
  return static_cast<const PeerProcess*>(met_.back().get());
}

// ---- workers ------------------------------------------------------------------------------------

// A worker that shares a CQ with up to seven others may use an eighth of its MRQ.
Sizes Device::sizes(bool exclusive) const {
  const std::uint64_t depth = exclusive ? mrq_depth_ : std::max(mrq_depth_ / kSharers, kLeastMrqDepth);
  return sizes_for(depth, std::uint64_t{size()} * max_workers_);
}

base::Result<std::unique_ptr<OwnVcq>> Device::open_own_vcq(std::uint32_t worker, Sizes* sizes) {
  if (worker >= max_workers_) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u; HEDDLE_MAX_WORKERS allows 0 to %u", worker, max_workers_ - 1);
  }
  {
    const std::lock_guard lock(mutex_);
    if (used_[worker]) {
      return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", worker);
    }
    used_[worker] = true;
  }
  auto own_vcq = make_own_vcq(sizes);
  if (!own_vcq) {
    const std::lock_guard lock(mutex_);
    used_[worker] = false;
  }
  return own_vcq;
}

base::Result<std::unique_ptr<OwnVcq>> Device::make_own_vcq(Sizes* sizes) {
  auto vcq = library_->create(most_exclusive_, may_share());
  if (!vcq) return vcq.status();
  auto own_vcq = std::make_unique<OwnVcq>();
  own_vcq->vcq = *vcq;
  *sizes = this->sizes(vcq->lock == nullptr);
  base::Status status = HEDDLE_DONE;
  if (vcq->lock != nullptr && !may_share()) {
    status = base::fail(
        HEDDLE_ERR_NO_MEMORY,
        "no CQ is left for this worker alone, and HEDDLE_UTOFU_MRQ_DEPTH=%llu is too little to share one; "
        "it takes %llu",
        static_cast<unsigned long long>(mrq_depth_), static_cast<unsigned long long>(kSharers * kLeastMrqDepth));
  } else if (auto block = Pages::create(sizes->block_bytes())) {
    own_vcq->block = std::move(*block);
    const CqGuard guard(own_vcq->vcq);
    auto stadd = library_->register_memory(own_vcq->vcq, own_vcq->block.data(), own_vcq->block.bytes());
    status = stadd.status();
    if (stadd) own_vcq->stadd = *stadd;
  } else {
    status = block.status();
  }
  if (status == HEDDLE_DONE) return own_vcq;
  library_->destroy(own_vcq->vcq);
  return status;
}

base::Status Device::announce(std::uint32_t worker, DirectoryEntry entry) {
  seal(&entry, secret_);
  const Functions& call = library_->call();
  base::Nap nap;
  const std::lock_guard one(announcing_);
  for (bool posted = false;;) {
    {
      const CqGuard guard(vcq_);
      void* tag = nullptr;
      int code = UTOFU_SUCCESS;
      do code = call.poll_tcq(vcq_.handle, 0, &tag);
      while (code == UTOFU_SUCCESS);
      if (code != UTOFU_ERR_NOT_FOUND) {
        // The command failed on its way out; no notice will come.
      } else if (!posted) {
        code = call.put_piggyback(vcq_.handle, vcq_.id, &entry, directory_stadd_ + worker * sizeof(DirectoryEntry),
                                  sizeof entry, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
        posted = code == UTOFU_SUCCESS;
      } else {
        utofu_mrq_notice notice{};
        code = call.poll_mrq(vcq_.handle, 0, &notice);
        if (code == UTOFU_SUCCESS) return HEDDLE_DONE;
      }
      if (code != UTOFU_SUCCESS && code != UTOFU_ERR_BUSY && code != UTOFU_ERR_NOT_FOUND) {
        return base::fail(HEDDLE_ERR_SYSTEM, "worker %u cannot be shown to the peers: %s (%d)", worker,
                          error_name(code), code);
      }
    }
    nap.take();
  }
}

void Device::keep(std::unique_ptr<OwnVcq> own_vcq) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(own_vcq));
}

// ---- regions ------------------------------------------------------------------------------------

base::Result<LocalMemory> Device::register_memory(void* address, std::uint64_t bytes, Pages pages) {
  Region region;
  region.begin = reinterpret_cast<std::uintptr_t>(address);
  region.bytes = bytes;
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++next_region_;
  }
  if (pages.data() == nullptr || ports_.size() == 1 || !register_with_all(address, bytes, &region)) {
    region.port = static_cast<std::uint16_t>(id % ports_.size());
    const Vcq& port = ports_[region.port];
    const CqGuard guard(port);
    const auto registered = library_->register_memory(port, address, bytes);
    if (!registered) return registered.status();
    region.stadds[0] = *registered;
  }
  KeyBytes key;
  key.rank = rank();
  key.id = static_cast<std::uint32_t>(id);
  key.stag = region.stag;
  key.port = region.port;
  key.bytes = bytes;
  key.stadd = region.stadds[0];
  key.address = region.begin;
  seal(&key, secret_);
  region.pages = std::move(pages);
  LocalMemory memory;
  memory.address = address;
  memory.bytes = bytes;
  memory.id = id;
  std::memcpy(memory.key.bytes.data(), &key, sizeof key);
  const std::lock_guard lock(mutex_);
  regions_[id] = std::move(region);
  return memory;
}

// Registers under a number that is free on all ports. False: there is none, or the library fails;
// nothing is registered then.
bool Device::register_with_all(void* address, std::uint64_t bytes, Region* region) {
  const std::lock_guard one(registering_);
  for (std::size_t tried = 0; tried < stags_.size(); ++tried) {
    const std::size_t stag = next_stag_++ % stags_.size();
    if (stags_[stag]) continue;
    std::size_t done = 0;
    base::Status status = HEDDLE_DONE;
    while (status == HEDDLE_DONE && done < ports_.size()) {
      const CqGuard guard(ports_[done]);
      const auto stadd = library_->register_as(ports_[done], address, bytes, static_cast<unsigned>(stag));
      status = stadd.status();
      if (stadd) region->stadds[done++] = *stadd;
    }
    if (status == HEDDLE_DONE) {
      stags_[stag] = true;
      region->stag = static_cast<std::uint16_t>(stag);
      return true;
    }
    while (done > 0) {
      --done;
      const CqGuard guard(ports_[done]);
      library_->deregister(ports_[done], region->stadds[done]);
    }
    if (status != HEDDLE_ERR_STATE) return false;  // STATE: another user of the CQ has that number
  }
  return false;
}

void Device::deregister(const Region& region) {
  const bool all = region.stag != KeyBytes::kNoStag;
  for (std::size_t i = 0; i < (all ? ports_.size() : 1); ++i) {
    const Vcq& port = ports_[all ? i : region.port];
    const CqGuard guard(port);
    library_->deregister(port, region.stadds[i]);
  }
  if (!all) return;
  const std::lock_guard one(registering_);
  stags_[region.stag] = false;
}

void Device::deregister(std::uint64_t id) {
  Region region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(id);
    if (found == regions_.end()) return;
    region = std::move(found->second);
    regions_.erase(found);
  }
  // The memory may be unmapped now, by the program or by us, but workers may still have it
  // registered as a source or destination.
  if (watch_ != nullptr) watch_->forget(region.begin, region.begin + region.bytes);
  deregister(region);
}

base::Status Device::ways_to(const PeerProcess& peer, const KeyBytes& key, Way* ways) const {
  if (key.stag == KeyBytes::kNoStag) {
    if (key.port >= peer.ports.count) return HEDDLE_ERR_PROTOCOL;
    for (std::size_t i = 0; i < kWays; ++i) ways[i] = {key.stadd, peer.ports.vcq[key.port]};
    return HEDDLE_DONE;
  }
  for (std::size_t i = 0; i < kWays; ++i) {
    ways[i].vcq = peer.ports.vcq[i % peer.ports.count];
    // stadd_of() takes a lock: no document says that two threads may query at once.
    if (library_->stadd_of(ways[i].vcq, key.stag, &ways[i].stadd) != HEDDLE_DONE) return HEDDLE_ERR_PROTOCOL;
  }
  return HEDDLE_DONE;
}

}  // namespace heddle::transport::utofu
