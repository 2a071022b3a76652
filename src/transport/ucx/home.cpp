#include "transport/ucx/home.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/fd.hpp"
#include "transport/ucx/silence.hpp"
#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint64_t kProbeNs = 5'000'000'000;

}  // namespace

base::Status meaning_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return HEDDLE_DONE;
    case UCS_ERR_NO_MEMORY:
      return HEDDLE_ERR_NO_MEMORY;
    case UCS_ERR_NO_RESOURCE:
      return HEDDLE_AGAIN;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_INVALID_ADDR:
      return HEDDLE_ERR_SYSTEM;
    default:
      return HEDDLE_ERR_PEER_FAILED;  // what UCX says of a connection, in many words
  }
}

Home::Home(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library)
    : bootstrap_(bootstrap),
      rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      environment_(environment),
      library_(&library),
      call_(library.call()),
      max_workers_(static_cast<std::uint32_t>(environment.config.number(base::Var::max_workers))),
      window_(static_cast<std::uint32_t>(environment.config.number(base::Var::ucx_window_bytes))),
      secret_(bootstrap.secret()),
      agreed_(agreed_of(environment.config)),
      unreachable_(bootstrap.size()),
      lost_(bootstrap.size()),
      losses_of_(bootstrap.size()),
      peers_(bootstrap.size()),
      own_(max_workers_),
      helper_(*this, environment, bootstrap.common_bell()) {}

base::Result<std::unique_ptr<Home>> Home::create(bootstrap::Bootstrap& bootstrap,
                                                 const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::ucx_library));
  if (!library) return library.status();
  std::unique_ptr<Home> home(new Home(bootstrap, environment, **library));
  if (const base::Status status = home->set_up(); status != HEDDLE_DONE) return status;
  return home;
}

base::Status Home::set_up() {
  const std::uint64_t silence = environment_.config.number(base::Var::ucx_timeout);
  if (silence != 0 && silence < kLeastSilence) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_UCX_TIMEOUT is %llu ns; 0, or from 1s to 240s",
                      static_cast<unsigned long long>(silence));
  }
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = call_.config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return base::fail(HEDDLE_ERR_CONFIG, "UCX does not accept its settings: %s; look at the UCX_* variables",
                      call_.status_string(status));
  }
  base::Status status = configure(config);
  if (status == HEDDLE_DONE) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    params.name = "heddle";
    const ucs_status_t made = call_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    if (made != UCS_OK) {
      context_ = nullptr;
      status = base::fail(
          HEDDLE_ERR_CONFIG,
          "UCX %s finds no network: %s; look at HEDDLE_UCX_TLS=\"%s\", HEDDLE_UCX_NET_DEVICES=\"%s\" and "
          "the UCX_* variables",
          library_->version().c_str(), call_.status_string(made), environment_.config.text(base::Var::ucx_tls).c_str(),
          environment_.config.text(base::Var::ucx_net_devices).c_str());
    }
  }
  call_.config_release(config);
  if (status != HEDDLE_DONE) return status;
  if (status = open_home_worker(); status != HEDDLE_DONE) return status;
  int descriptor = -1;
  if (const ucs_status_t asked = call_.worker_get_efd(worker_, &descriptor); asked != UCS_OK) {
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no descriptor to sleep on: %s", call_.status_string(asked));
  }
  if (status = publish(); status != HEDDLE_DONE) return status;
  return helper_.start(descriptor);
}

base::Status Home::configure(ucp_config_t* config) {
  struct Setting {
    const char* name;
    std::string value;
  };
  const Setting settings[] = {
      {"TLS", environment_.config.text(base::Var::ucx_tls)},
      {"NET_DEVICES", environment_.config.text(base::Var::ucx_net_devices)},
      // Allocated regions are zeros, and nothing of them is left when the process is killed.
      {"ALLOC_PRIO", "md:posix,md:sysv,mmap"},
      // An adapter's own atomics are atomic among themselves only.
      {"ATOMIC_MODE", bootstrap_.atomics_beside_processors() ? "cpu" : ""},
  };
  for (const Setting& setting : settings) {
    if (setting.value.empty()) continue;
    if (call_.config_modify(config, setting.name, setting.value.c_str()) != UCS_OK) {
      return base::fail(HEDDLE_ERR_CONFIG, "UCX does not accept \"%s\" as %s", setting.value.c_str(), setting.name);
    }
  }
  return HEDDLE_DONE;
}

base::Status Home::no_worker(ucs_status_t status) const {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  return base::fail(
      HEDDLE_ERR_SYSTEM,
      "UCX gives no worker: %s; it needs memory and descriptors, of which this process may have %llu (ulimit -n)",
      call_.status_string(status), static_cast<unsigned long long>(descriptors.rlim_cur));
}

base::Status Home::open_home_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = call_.worker_create(context_, &params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return no_worker(status);
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kNoteId;
  handler.cb = on_note;
  handler.arg = this;
  status = call_.worker_set_am_recv_handler(worker_, &handler);
  if (status == UCS_OK) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "UCX takes no handler: %s", call_.status_string(status));
}

base::Status Home::publish() {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (const ucs_status_t status = call_.worker_get_address(worker_, &address, &bytes); status != UCS_OK) {
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no address: %s", call_.status_string(status));
  }
  CardHead head;
  library_->version().copy(head.ucx, sizeof head.ucx - 1);
  head.agreed = agreed_;
  head.max_workers = max_workers_;
  head.window = window_;
  head.address_bytes = bytes;
  bootstrap::Card card;
  card.pid = static_cast<std::int32_t>(::getpid());
  card.bytes.resize(sizeof head + bytes);
  std::memcpy(card.bytes.data(), &head, sizeof head);
  std::memcpy(card.bytes.data() + sizeof head, address, bytes);
  const base::Status usable = probe(address);
  call_.worker_release_address(worker_, address);
  if (usable != HEDDLE_DONE) return usable;
  if (card.bytes.size() > bootstrap::kMaxCardBytes) {
    return base::fail(HEDDLE_ERR_SYSTEM,
                      "an address of UCX has %zu bytes, and a card takes %zu; let HEDDLE_UCX_TLS or "
                      "HEDDLE_UCX_NET_DEVICES name fewer",
                      bytes, bootstrap::kMaxCardBytes - sizeof head);
  }
  return bootstrap_.publish(card);
}

ucs_status_t Home::connect(ucp_worker_h worker, const void* address, ucp_err_handler_cb_t broken, void* arg,
                           ucp_ep_h* endpoint) const {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = static_cast<const ucp_address_t*>(address);
  params.err_mode = recovers_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = broken;
  params.err_handler.arg = arg;
  const ucs_status_t status = call_.ep_create(worker, &params, endpoint);
  if (status != UCS_OK) *endpoint = nullptr;
  return status;
}

// A worker that has connected to worker_, and nothing else. Destroyed while its greeting is on the way over verbs, UCX 1.13 aborts the program. Over
// TCP and shared memory it may go at once, and does: a connection that is made there first costs memory for each rank, and time where many join.
void Home::end_probe(ucp_worker_h worker) {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  if (devices == end(devices)) return call_.worker_destroy(worker);
  const ucp_request_param_t params{};
  void* request = call_.worker_flush_nbx(worker, &params);
  const std::uint64_t until = environment_.clock->now_ns() + kProbeNs;
  bool ended = request == nullptr;
  while (!ended && !UCS_PTR_IS_ERR(request) && environment_.clock->now_ns() < until) {
    call_.worker_progress(worker);
    call_.worker_progress(worker_);
    ended = call_.request_check_status(request) != UCS_INPROGRESS;
  }
  if (request != nullptr && ended) call_.request_free(request);
  if (ended) return call_.worker_destroy(worker);
  buried_ = true;
  Library::bury(worker);
}

// Whether there is a way to other processes that UCX watches; found with a connection to oneself, which is given up at once.
base::Status Home::probe(const void* address) {
  for (const bool recovers : {true, false}) {
    recovers_ = recovers;
    ucp_worker_params_t params{};
    ucp_worker_h worker = nullptr;
    if (const ucs_status_t made = call_.worker_create(context_, &params, &worker); made != UCS_OK)
      return no_worker(made);
    ucp_ep_h endpoint = nullptr;
    const ucs_status_t status = [&] {
      const Library::Hush hush;
      return connect(worker, address, nullptr, nullptr, &endpoint);
    }();
    end_probe(worker);
    if (status == UCS_OK) return HEDDLE_DONE;
  }
  return base::fail(
      HEDDLE_ERR_CONFIG,
      "UCX %s has no transport that does for messages; look at HEDDLE_UCX_TLS=\"%s\" and the UCX_* variables",
      library_->version().c_str(), environment_.config.text(base::Var::ucx_tls).c_str());
}

bool Home::failed(std::uint32_t rank) const {
  return bootstrap_.failed(rank) || unreachable_[rank].load(std::memory_order_relaxed);
}

// Who leaves, or dies, ends its connections too; of that the bootstrap tells, later or sooner.
void Home::give_up_lost() {
  if (losses_.load(std::memory_order_relaxed) == 0) return;
  bool some = false;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const Loss before = losses_of_[rank].load(std::memory_order_relaxed);
    if (lost(rank) == 0 || before == Loss::given_up || bootstrap_.failed(rank)) continue;
    losses_of_[rank].store(before == Loss::none ? Loss::seen : Loss::given_up, std::memory_order_release);
    if (before == Loss::none) continue;
    some = true;
    environment_.log.line(base::Level::warn, "rank %u is not reached any more: what waits for it ends with PEER_FAILED",
                          rank);
  }
  if (some) bootstrap_.note_given_up();
}

base::Status Home::take_number(std::uint32_t worker) {
  if (worker >= max_workers_) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u; HEDDLE_MAX_WORKERS allows 0 to %u", worker, max_workers_ - 1);
  }
  const std::lock_guard lock(mutex_);
  if (own_[worker].taken) {
    return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", worker);
  }
  closed_.reserve(max_workers_);  // so that closing needs no memory
  own_[worker].taken = true;
  return HEDDLE_DONE;
}

base::Status Home::announce(std::uint32_t worker, Bytes address) {
  const std::lock_guard lock(mutex_);
  own_[worker].address = std::move(address);
  own_[worker].known = Known::open;
  tell_those_who_asked(worker);
  return HEDDLE_DONE;
}

void Home::close(std::uint32_t worker, std::unique_ptr<Station> station) {
  const std::lock_guard lock(mutex_);
  own_[worker].known = Known::closed;
  own_[worker].address.clear();
  tell_those_who_asked(worker);
  closed_.push_back(std::move(station));  // take_number() has made room
  work();
  helper_.wake();
}

// ---- memory -----------------------------------------------------------------------------------------------------------

base::Result<LocalMemory> Home::allocate(std::uint64_t bytes) {
  if (bytes == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "a region of 0 bytes; at least 1 is needed");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = (bytes + page - 1) / page * page;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = bytes > kMost ? UCS_ERR_NO_MEMORY : call_.mem_map(context_, &params, &memory);
  if (status != UCS_OK) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a region of %llu bytes: %s",
                      static_cast<unsigned long long>(bytes), call_.status_string(status));
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  if (call_.mem_query(memory, &attributes) != UCS_OK) {
    call_.mem_unmap(context_, memory);
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX does not say where it has allocated memory");
  }
  return enter(memory, attributes.address, bytes);
}

base::Result<LocalMemory> Home::enroll(void* address, std::uint64_t bytes) {
  if (address == nullptr || bytes == 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "a region of %llu bytes at %p; give memory of at least 1 byte",
                      static_cast<unsigned long long>(bytes), address);
  }
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = address;
  params.length = bytes;
  ucp_mem_h memory = nullptr;
  if (const ucs_status_t status = call_.mem_map(context_, &params, &memory); status != UCS_OK) {
    return base::fail(status == UCS_ERR_NO_MEMORY ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                      "%llu bytes at %p cannot be registered with UCX: %s", static_cast<unsigned long long>(bytes),
                      address, call_.status_string(status));
  }
  return enter(memory, address, bytes);
}

base::Result<LocalMemory> Home::enter(ucp_mem_h memory, void* address, std::uint64_t bytes) {
  void* packed = nullptr;
  std::size_t packed_bytes = 0;
  if (const ucs_status_t status = call_.rkey_pack(context_, memory, &packed, &packed_bytes); status != UCS_OK) {
    call_.mem_unmap(context_, memory);
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no key for a region: %s", call_.status_string(status));
  }
  const std::lock_guard lock(mutex_);
  LocalMemory local;
  local.address = address;
  local.bytes = bytes;
  local.id = next_region_;
  try {
    const auto* begin = static_cast<const std::byte*>(packed);
    regions_.emplace(local.id, Region{memory, Bytes(begin, begin + packed_bytes)});
  } catch (const std::bad_alloc&) {
    call_.rkey_buffer_release(packed);
    call_.mem_unmap(context_, memory);
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for one region more");
  }
  call_.rkey_buffer_release(packed);
  ++next_region_;
  KeyBytes key;
  key.rank = rank();
  key.address = reinterpret_cast<std::uintptr_t>(address);
  key.bytes = bytes;
  key.id = local.id;
  seal(&key, secret_);
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

void Home::withdraw(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  call_.mem_unmap(context_, found->second.memory);
  regions_.erase(found);
}

base::Result<RemoteMemory> Home::import(std::uint32_t rank, const KeyBytes& key) {
  const std::lock_guard lock(mutex_);
  std::uint64_t number = imports_.size();
  if (const auto known = import_of_.find({rank, key.id}); known != import_of_.end()) {
    number = known->second;
  } else {
    if (free_imports_.empty()) {
      imports_.emplace_back();
      free_imports_.push_back(number);
    }
    number = free_imports_.back();
    import_of_.emplace(std::pair{rank, key.id}, number);  // should there be no memory, the number is free still
    free_imports_.pop_back();
    imports_[number].generation = next_generation_++;
    imports_[number].rank = rank;
    imports_[number].id = key.id;
  }
  Import& import = imports_[number];
  ++import.uses;
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key.bytes;
  memory.handle = {number, import.generation, key.address, 0};
  return memory;
}

void Home::release(const RemoteMemory& memory) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = memory.handle[0];
  if (number >= imports_.size() || imports_[number].generation != memory.handle[1]) return;
  if (--imports_[number].uses != 0) return;
  import_of_.erase({imports_[number].rank, imports_[number].id});
  imports_[number] = Import{};
  free_imports_.push_back(number);
  releases_.fetch_add(1, std::memory_order_relaxed);
}

bool Home::import_is(std::uint64_t import, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  return import < imports_.size() && imports_[import].generation == generation;
}

}  // namespace heddle::transport::ucx
