#include "memory/registration_cache.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/wait.hpp"

namespace heddle::memory {
namespace {

// For a cache without a watch: its generation is always kNobody.
constexpr UnmapWatch::Log kUnwatched;

constexpr std::uint64_t kNoCheck = ~std::uint64_t{0};

}  // namespace

RegistrationCache::Options RegistrationCache::Options::from(const base::Config& config) {
  Options options;
  options.keep = config.flag(base::Var::reg_cache);
  options.entries = static_cast<std::uint32_t>(config.number(base::Var::reg_cache_entries));
  options.bytes = config.number(base::Var::reg_cache_bytes);
  options.check_bytes = config.number(base::Var::reg_cache_check_bytes);
  options.watch = config.flag(base::Var::reg_cache_watch);
  return options;
}

std::shared_ptr<UnmapWatch> RegistrationCache::watch_for(const Options& options, const base::Log& log) {
  if (!options.keep) return nullptr;
  base::Result<std::shared_ptr<UnmapWatch>> watch = UnmapWatch::of_process(options.watch);
  if (watch) return *watch;
  static std::atomic<bool> said{false};  // relaxed: the first caller writes the line
  if (said.exchange(true, std::memory_order_relaxed)) return nullptr;
  log.line(base::Level::info, "registrations of the program's memory are not kept (HEDDLE_REG_CACHE): %s",
           base::last_message());
  return nullptr;
}

RegistrationCache::RegistrationCache(Registrar& registrar, std::shared_ptr<UnmapWatch> watch, const Options& options)
    : log_(&kUnwatched),
      check_bytes_(options.check_bytes),
      registrar_(registrar),
      watch_(std::move(watch)),
      most_bytes_(options.bytes),
      most_entries_(std::max(options.entries, 1u)),
      keep_(options.keep && watch_ != nullptr) {
  if (keep_) {
    log_ = &watch_->log();
    seen_ = log_->generation();
    // an event that is being written concerns nothing that this cache keeps
    while (!UnmapWatch::Log::stable(seen_)) {
      ::sched_yield();
      seen_ = log_->generation();
    }
  }
  const std::uint32_t entries = most_entries_ + kSpare + 1;
  entry_memory_ = std::make_unique<Entry[]>(entries);
  entries_ = entry_memory_.get();
  for (std::uint32_t at = entries - 1; at != kNone; --at) {
    entries_[at].newer = free_;
    free_ = at;
  }
  const std::uint64_t fronts = std::bit_ceil(std::uint64_t{2} * entries);
  front_memory_ = std::make_unique<std::uint32_t[]>(fronts);
  front_ = front_memory_.get();
  front_shift_ = static_cast<std::uint32_t>(64 - std::countr_zero(fronts));
  page_shift_ = static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))));
  index_.reserve(most_entries_);
}

RegistrationCache::~RegistrationCache() {
  if (keep_ && watch_->inherited()) return;  // what the hardware has registered is the parent's
  while (!index_.empty()) retire(index_.size() - 1);
}

std::string RegistrationCache::describe() const {
  const Counters& c = counters_;
  if (c.hits + c.misses + c.passing == 0) return {};
  return std::to_string(c.hits) + " hits, " + std::to_string(c.misses) + " misses, " + std::to_string(c.passing) +
         " for one operation, " + std::to_string(c.evictions) + " evicted, " + std::to_string(c.invalidations) +
         " unmapped, " + std::to_string(kept_bytes_ >> 10) + " KiB kept";
}

// ---- looking up ---------------------------------------------------------------------------------

// Not the registration of the last call, but the one that front_ guesses.
[[gnu::noinline]] base::Status RegistrationCache::acquire_another(std::uint64_t place, std::uint64_t bytes,
                                                                  Access access, Lease* lease) {
  const std::uint32_t at = front_[front_of(place)];
  const Entry& entry = entries_[at];
  const std::uint64_t offset = place - entry.begin;
  const std::uint64_t limit = entry.limit[static_cast<std::size_t>(access)];
  if (log_->generation() == seen_ && offset < limit && bytes <= limit - offset && bytes < check_bytes_) [[likely]] {
    use_kept(at);
    *lease = {entry.handle, offset, at};
    return HEDDLE_DONE;
  }
  return acquire_slowly(place, bytes, access, lease);
}

base::Status RegistrationCache::acquire_slowly(std::uint64_t place, std::uint64_t bytes, Access access, Lease* lease) {
  const std::uint64_t page = std::uint64_t{1} << page_shift_;
  if (bytes == 0 || bytes > kNoCheck - page - place) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "%llu bytes at address %llx are no memory that can be registered; pass a range that is mapped",
                      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(place));
  }
  if (keep_ && bytes >= check_bytes_) {
    while (!watch_->stable()) ::sched_yield();
  }
  if (keep_) catch_up();
  if (keep_) {
    if (const std::uint32_t at = find(place, bytes, access); at != kNone) {
      use_kept(at);
      lend(at, place, lease);
      return HEDDLE_DONE;
    }
  }
  return register_anew(place, bytes, access, lease);
}

void RegistrationCache::lend(std::uint32_t at, std::uint64_t place, Lease* lease) {
  if (entries_[at].state == State::kept) front_[front_of(place)] = at;
  *lease = {entries_[at].handle, place - entries_[at].begin, at};
}

// Reads the log up to its current generation, when that is stable.
void RegistrationCache::catch_up() {
  using Log = UnmapWatch::Log;
  for (;;) {
    const std::uint64_t now = log_->generation();
    if (now == seen_) return;
    if (now == Log::kNobody) return abandon();
    if (!Log::stable(now)) {
      ::sched_yield();  // the writer is at work, and waits for nobody
      continue;
    }
    for (std::uint64_t n = Log::event_of(seen_); n != Log::event_of(now); ++n) {
      Gone gone{};
      const bool known = log_->read(n, &gone) == Log::Read::event;
      if (!known) gone = {0, ~std::uint64_t{0}};
      retire_overlapping({gone.begin, gone.end}, &counters_.invalidations);
      if (!known) break;
    }
    seen_ = now;
  }
}

// The watch has ended: keeps nothing from now on.
void RegistrationCache::abandon() {
  keep_ = false;
  log_ = &kUnwatched;
  seen_ = UnmapWatch::Log::kNobody;
  if (watch_->inherited()) {
    // the registrations are the parent's
    for (const std::uint32_t at : index_) entries_[at].limit = {};
    index_.clear();
    entries_[kNone].newer = entries_[kNone].older = kNone;
    return;
  }
  while (!index_.empty()) {
    ++counters_.invalidations;
    retire(index_.size() - 1);
  }
}

// The place in index_ of the first entry that begins after `place`.
std::size_t RegistrationCache::first_after(std::uint64_t place) const {
  const auto after =
      std::upper_bound(index_.begin(), index_.end(), place,
                       [this](std::uint64_t value, std::uint32_t at) { return value < entries_[at].begin; });
  return static_cast<std::size_t>(after - index_.begin());
}

std::uint32_t RegistrationCache::find(std::uint64_t place, std::uint64_t bytes, Access access) const {
  const std::size_t after = first_after(place);
  if (after == 0) return kNone;
  const std::uint32_t at = index_[after - 1];
  const std::uint64_t offset = place - entries_[at].begin;
  const std::uint64_t limit = entries_[at].limit[static_cast<std::size_t>(access)];
  return offset < limit && bytes <= limit - offset ? at : kNone;
}

// ---- registering --------------------------------------------------------------------------------

base::Status RegistrationCache::register_anew(std::uint64_t place, std::uint64_t bytes, Access access, Lease* lease) {
  const std::uint64_t mask = (std::uint64_t{1} << page_shift_) - 1;
  const Range range{place & ~mask, (place + bytes + mask) & ~mask};
  std::uint32_t at = kNone;
  base::Status status = HEDDLE_ERR_UNSUPPORTED;
  if (keep_ && range.end - range.begin <= most_bytes_) {
    const Range joined = join_overlapping(range);
    status = register_kept(joined, access, &at);
    // The joined range may be more than there is room for, or than is still mapped.
    if (status < 0 && (joined.begin != range.begin || joined.end != range.end)) {
      status = register_kept(range, access, &at);
    }
  }
  if (status == HEDDLE_ERR_UNSUPPORTED) status = register_passing(range, access, &at);
  if (status == HEDDLE_DONE) lend(at, place, lease);
  return status;
}

// The range joined with the kept entries that overlap it, since kept entries are disjoint; `range`
// as it is if the joined one could not be kept.
RegistrationCache::Range RegistrationCache::join_overlapping(Range range) const {
  Range joined = range;
  std::size_t i = first_after(range.begin);
  if (i > 0) --i;
  for (; i < index_.size() && entries_[index_[i]].begin < range.end; ++i) {
    const Entry& entry = entries_[index_[i]];
    if (entry.begin + entry.bytes <= range.begin) continue;
    joined = {std::min(joined.begin, entry.begin), std::max(joined.end, entry.begin + entry.bytes)};
  }
  return joined.end - joined.begin <= most_bytes_ ? joined : range;
}

// DONE: kept, with one user. UNSUPPORTED: it cannot be kept. Else as the registrar says.
base::Status RegistrationCache::register_kept(Range range, Access access, std::uint32_t* at) {
  const std::uint64_t bytes = range.end - range.begin;
  retire_overlapping(range, &counters_.evictions);
  while (index_.size() >= most_entries_ || kept_bytes_ > most_bytes_ - bytes) {
    if (!evict_one()) return HEDDLE_ERR_UNSUPPORTED;
  }
  if (free_ == kNone || !watch_->watch(range.begin, range.end)) return HEDDLE_ERR_UNSUPPORTED;
  Access got = access;
  std::uint64_t handle = 0;
  const base::Status status = register_memory(range, access, &got, &handle);
  if (status != HEDDLE_DONE) {
    watch_->unwatch(range.begin, range.end);
    return status;
  }
  ++counters_.misses;
  *at = take_entry(range, handle);
  Entry& entry = entries_[*at];
  entry.state = State::kept;
  entry.watched = true;
  entry.limit = {bytes, got == Access::write ? bytes : 0};
  kept_bytes_ += bytes;
  join_list(*at);
  index_.insert(index_.begin() + static_cast<std::ptrdiff_t>(first_after(range.begin)), *at);
  return HEDDLE_DONE;
}

base::Status RegistrationCache::register_passing(Range range, Access access, std::uint32_t* at) {
  if (free_ == kNone && !evict_one()) return HEDDLE_AGAIN;
  std::uint64_t handle = 0;
  const base::Status status = register_memory(range, access, &access, &handle);
  if (status != HEDDLE_DONE) return status;
  ++counters_.passing;
  *at = take_entry(range, handle);
  entries_[*at].state = State::retired;
  return HEDDLE_DONE;
}

base::Status RegistrationCache::register_memory(Range range, Access wanted, Access* got, std::uint64_t* handle) {
  auto* begin = reinterpret_cast<std::byte*>(range.begin);  // NOLINT(performance-no-int-to-ptr)
  const std::uint64_t bytes = range.end - range.begin;
  for (;;) {
    *got = Access::write;
    base::Status status = registrar_.register_memory(begin, bytes, Access::write, handle);
    // For any reason, since not every library says that the access is the problem.
    if (status != HEDDLE_DONE && status != HEDDLE_AGAIN && wanted == Access::read) {
      *got = Access::read;
      status = registrar_.register_memory(begin, bytes, Access::read, handle);
    }
    if (status != HEDDLE_ERR_NO_MEMORY) return status;
    // Operations under way will release what they use.
    if (!evict_one()) return leases_out() ? HEDDLE_AGAIN : status;
  }
}

// Takes a free entry, with one user. There must be one.
std::uint32_t RegistrationCache::take_entry(Range range, std::uint64_t handle) {
  const std::uint32_t at = free_;
  Entry& entry = entries_[at];
  free_ = entry.newer;
  entry.begin = range.begin;
  entry.bytes = range.end - range.begin;
  entry.handle = handle;
  entry.users = 1;
  entry.watched = false;
  return at;
}

bool RegistrationCache::leases_out() const {
  const std::uint32_t entries = most_entries_ + kSpare + 1;
  return std::any_of(entries_, entries_ + entries, [](const Entry& entry) { return entry.users != 0; });
}

// ---- deregistering -----------------------------------------------------------------------------

void RegistrationCache::retire_overlapping(Range range, std::uint64_t* counter) {
  std::size_t i = first_after(range.begin);
  if (i > 0 && entries_[index_[i - 1]].begin + entries_[index_[i - 1]].bytes > range.begin) --i;
  while (i < index_.size() && entries_[index_[i]].begin < range.end) {
    ++*counter;
    retire(i);
  }
}

// The entry covers nothing from now on; it is deregistered when no operation uses it.
void RegistrationCache::retire(std::size_t index) {
  const std::uint32_t at = index_[index];
  index_.erase(index_.begin() + static_cast<std::ptrdiff_t>(index));
  Entry& entry = entries_[at];
  entry.limit = {};
  entry.state = State::retired;
  kept_bytes_ -= entry.bytes;
  leave_list(entry);
  if (entry.users == 0) end_retired(at);
}

void RegistrationCache::end_retired(std::uint32_t at) {
  Entry& entry = entries_[at];
  registrar_.deregister(entry.handle);
  if (entry.watched) watch_->unwatch(entry.begin, entry.begin + entry.bytes);
  entry.state = State::free;
  entry.newer = free_;
  free_ = at;
}

// Evicts, of the entries that no operation uses, the least recently used one. False: there is none.
bool RegistrationCache::evict_one() {
  std::uint32_t at = entries_[kNone].newer;
  while (at != kNone && entries_[at].users != 0) at = entries_[at].newer;
  if (at == kNone) return false;
  ++counters_.evictions;
  retire(first_after(entries_[at].begin) - 1);
  return true;
}

void RegistrationCache::drop_idle() {
  while (evict_one()) {
  }
}

void RegistrationCache::forget(const void* address, std::uint64_t bytes) {
  const auto place = reinterpret_cast<std::uint64_t>(address);
  retire_overlapping({place, bytes > kNoCheck - place ? kNoCheck : place + bytes}, &counters_.invalidations);
}

}  // namespace heddle::memory
