#include "transport/ucx/device.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint64_t kProbeNs = 5'000'000'000;
// Rounds of progress in one visit of the helper.
constexpr int kRounds = 64;

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library)
    : bootstrap_(bootstrap),
      rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      environment_(environment),
      library_(library),
      call_(library.call()),
      max_workers_(static_cast<std::uint32_t>(environment.config.number(base::Var::max_workers))),
      window_(static_cast<std::uint32_t>(environment.config.number(base::Var::ucx_window_bytes))),
      secret_(bootstrap.secret()),
      agreed_(agreed_of(environment.config)),
      losses_(bootstrap),
      regions_(*this),
      directory_(*this),
      helper_(*this, environment, bootstrap.common_bell()) {
  closed_.reserve(max_workers_);  // so that closing needs no memory
}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::ucx_library));
  if (!library) return library.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, **library));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  const std::uint64_t silence = environment_.config.number(base::Var::ucx_timeout);
  if (silence != 0 && silence < kLeastSilence) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_UCX_TIMEOUT is %llu ns; 0, or from 1s to 240s",
                      static_cast<unsigned long long>(silence));
  }
  if (const base::Status status = open_context(); status != HEDDLE_DONE) return status;
  if (const base::Status status = directory_.open(); status != HEDDLE_DONE) return status;
  int descriptor = -1;
  if (const base::Status status = find_descriptor(call_, directory_.worker(), &descriptor); status != HEDDLE_DONE)
    return status;
  if (const base::Status status = publish(); status != HEDDLE_DONE) return status;
  return helper_.start(descriptor);
}

base::Status Device::open_context() {
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
          library_.version().c_str(), call_.status_string(made), environment_.config.text(base::Var::ucx_tls).c_str(),
          environment_.config.text(base::Var::ucx_net_devices).c_str());
    }
  }
  call_.config_release(config);
  return status;
}

base::Status Device::configure(ucp_config_t* config) {
  struct Setting {
    const char* name;
    std::string value;
  };
  const Setting settings[] = {
      {"TLS", environment_.config.text(base::Var::ucx_tls)},
      {"NET_DEVICES", environment_.config.text(base::Var::ucx_net_devices)},
      // Allocated regions are then zeros, and nothing of them is left when the process is killed.
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

base::Status Device::no_worker(ucs_status_t status) const {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  return base::fail(
      HEDDLE_ERR_SYSTEM,
      "UCX gives no worker: %s; it needs memory and descriptors, of which this process may have %llu (ulimit -n)",
      call_.status_string(status), static_cast<unsigned long long>(descriptors.rlim_cur));
}

base::Status Device::publish() {
  Bytes address;
  if (const auto status = find_address(call_, directory_.worker(), &address); status != HEDDLE_DONE) return status;
  if (const auto status = probe(address.data()); status != HEDDLE_DONE) return status;
  CardHead head;
  library_.version().copy(head.ucx, sizeof head.ucx - 1);
  head.agreed = agreed_;
  head.max_workers = max_workers_;
  head.window = window_;
  head.address_bytes = address.size();
  bootstrap::Card card;
  card.pid = static_cast<std::int32_t>(::getpid());
  card.bytes.resize(sizeof head + address.size());
  std::memcpy(card.bytes.data(), &head, sizeof head);
  std::memcpy(card.bytes.data() + sizeof head, address.data(), address.size());
  if (card.bytes.size() > bootstrap::kMaxCardBytes) {
    return base::fail(HEDDLE_ERR_SYSTEM,
                      "an address of UCX has %zu bytes, and a card takes %zu; let HEDDLE_UCX_TLS or "
                      "HEDDLE_UCX_NET_DEVICES name fewer",
                      address.size(), bootstrap::kMaxCardBytes - sizeof head);
  }
  return bootstrap_.publish(card);
}

ucs_status_t Device::connect(ucp_worker_h worker, const void* address, ucp_err_handler_cb_t broken, void* arg,
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

// Finds whether UCX can reach other processes by a way that it watches: with a connection to this
// process itself, which is closed at once.
base::Status Device::probe(const void* address) {
  for (const bool recovers : {true, false}) {
    recovers_ = recovers;
    ucp_worker_h worker = nullptr;
    if (const ucs_status_t made = create_worker(call_, context_, &worker); made != UCS_OK) return no_worker(made);
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
      library_.version().c_str(), environment_.config.text(base::Var::ucx_tls).c_str());
}

// Destroys a worker that has only connected to the device worker. UCX 1.13 aborts the program if
// that happens over verbs while the worker's greeting is on the way. Over TCP and shared memory the
// worker can be destroyed at once: to make its connection first would cost memory for each rank,
// and time when many join.
void Device::end_probe(ucp_worker_h worker) {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  if (devices == end(devices)) return call_.worker_destroy(worker);
  Flush flush = begin_flush(worker);
  const std::uint64_t until = environment_.clock->now_ns() + kProbeNs;
  while (!has_ended(&flush) && !UCS_PTR_IS_ERR(flush.request) && environment_.clock->now_ns() < until) {
    call_.worker_progress(directory_.worker());
  }
  flush.ended ? call_.worker_destroy(worker) : bury(worker);
}

// ---- ports --------------------------------------------------------------------------------------

base::Result<std::unique_ptr<Port>> Device::open_port(std::uint32_t index) {
  if (const base::Status status = directory_.take_number(index); status != HEDDLE_DONE) return status;
  return Port::create(*this, index);
}

void Device::take_over(std::unique_ptr<Port> port) {
  const std::lock_guard lock(mutex_);
  directory_.close(port->index());
  closed_.push_back(std::move(port));
  directory_.work();
  helper_.wake();
}

bool Device::linger() {
  bool moving = false;
  for (const auto& port : closed_) moving |= port->linger();
  return moving;
}

void Device::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const bool some = directory_.work();
  linger();
  // Nothing else tells the helper of what was read here, nor of what UCX may have begun by it and
  // its descriptor does not report.
  if (some || directory_.learned() || directory_.talks()) helper_.wake();
}

Device::Served Device::serve() {
  const std::lock_guard lock(mutex_);
  Served served;
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) {
    some = directory_.work();
    some = linger() || some;
  }
  served.learned = directory_.take_learned();
  served.moving = some || directory_.talks() || directory_.closes() || !arm_all();
  return served;
}

// False: something is there.
bool Device::arm_all() {
  if (call_.worker_arm(directory_.worker()) != UCS_OK) return false;
  for (const auto& port : closed_) {
    if (port->transfers().has_orphans()) continue;  // nobody makes progress on it any more
    if (call_.worker_arm(port->worker()) != UCS_OK) return false;
  }
  return true;
}

}  // namespace heddle::transport::ucx
