#include "transport/ucx/device.hpp"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint64_t kProbeNs = 5'000'000'000;

network::Device::Names names_of(const base::Config& config) {
  return {.transport = "ucx",
          .library = "UCX",
          .window_setting = "HEDDLE_UCX_WINDOW_BYTES",
          .timeout_setting = "HEDDLE_UCX_TIMEOUT",
          .window = static_cast<std::uint32_t>(config.number(base::Var::ucx_window_bytes)),
          .timeout_ns = config.number(base::Var::ucx_timeout)};
}

constexpr const char* kWithoutItsMemory = "^sm";

// Neither a variable nor a file of UCX's names transports.
bool leaves_transports_to_ucx(const Functions& call, const ucp_config_t* config) {
  if (std::getenv("UCX_TLS") != nullptr) return false;
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* const stream = ::open_memstream(&text, &length);
  if (stream == nullptr) return false;
  call.config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(stream);
  const bool leaves = text != nullptr && std::strstr(text, "UCX_TLS=all\n") != nullptr;
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): open_memstream's
  return leaves;
}

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library)
    : DeviceParts{{*this, library.call()}, {*this, library.call()}},
      network::Device(bootstrap, environment, names_of(environment.config), worker_, &regions_),
      library_(library),
      call_(library.call()) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::ucx_library));
  if (!library) return library.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, **library));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = network::check_silence(names().timeout_ns, names().timeout_setting);
      status != HEDDLE_DONE)
    return status;
  if (const base::Status status = open_context(); status != HEDDLE_DONE) return status;
  if (const base::Status status = worker_.open(); status != HEDDLE_DONE) return status;
  int descriptor = -1;
  if (const base::Status status = find_descriptor(call_, worker_.worker(), &descriptor); status != HEDDLE_DONE)
    return status;
  if (const base::Status status = publish(); status != HEDDLE_DONE) return status;
  return helper().start(descriptor);
}

std::string Device::describe() const {
  const auto named = [](const std::string& text) { return text.empty() ? std::string("as UCX chooses") : text; };
  const base::Config& config = environment().config;
  const std::string transports =
      transports_ == kWithoutItsMemory ? "as UCX chooses without its shared memory" : named(transports_);
  return "ucx (UCX " + library_.version() + ", transports " + transports + ", devices " +
         named(config.text(base::Var::ucx_net_devices)) + ", windows of " + std::to_string(window()) + " bytes)";
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
      status = no_network(std::string("finds no network: ") + call_.status_string(made));
    }
  }
  call_.config_release(config);
  return status;
}

base::Status Device::configure(ucp_config_t* config) {
  transports_ = environment().config.text(base::Var::ucx_tls);
  // Another transport reaches the ranks of this node. UCX's own shared memory would be of no use,
  // but for its files in /dev/shm, which stay when a process is killed.
  if (transports_.empty() && bootstrap().common_bell() != nullptr && leaves_transports_to_ucx(call_, config))
    transports_ = kWithoutItsMemory;
  struct Setting {
    const char* name;
    std::string value;
  };
  const Setting settings[] = {
      {"TLS", transports_},
      {"NET_DEVICES", environment().config.text(base::Var::ucx_net_devices)},
      // Allocated regions are then zeros, and nothing of them is left when the process is killed.
      {"ALLOC_PRIO", "md:posix,md:sysv,mmap"},
      // An adapter's own atomics are atomic among themselves only.
      {"ATOMIC_MODE", bootstrap().atomics_beside_processors() ? "cpu" : ""},
  };
  for (const Setting& setting : settings) {
    if (setting.value.empty()) continue;
    if (call_.config_modify(config, setting.name, setting.value.c_str()) != UCS_OK) {
      return base::fail(HEDDLE_ERR_CONFIG, "UCX does not accept \"%s\" as %s", setting.value.c_str(), setting.name);
    }
  }
  return HEDDLE_DONE;
}

// Nodes that are emulated (HEDDLE_NODE_RANKS) on a machine without a network have UCX's shared
// memory alone between them.
base::Status Device::no_network(const std::string& what) const {
  return base::fail(HEDDLE_ERR_CONFIG,
                    "UCX %s %s; look at HEDDLE_UCX_TLS=\"%s\", HEDDLE_UCX_NET_DEVICES=\"%s\" and the UCX_* variables%s",
                    library_.version().c_str(), what.c_str(), environment().config.text(base::Var::ucx_tls).c_str(),
                    environment().config.text(base::Var::ucx_net_devices).c_str(),
                    transports_ == kWithoutItsMemory
                        ? "; UCX goes without its shared memory here, which HEDDLE_UCX_TLS=all gives it"
                        : "");
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
  if (const auto status = find_address(call_, worker_.worker(), &address); status != HEDDLE_DONE) return status;
  if (const auto status = probe(address.data()); status != HEDDLE_DONE) return status;
  return network::Device::publish(library_.version(), "", address);
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

// Finds whether UCX can reach other processes by connections that it watches: with a connection to
// this process itself, which is closed at once.
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
  return no_network("has no transport that does for messages");
}

// Destroys a worker that has only connected to the device worker. UCX 1.13 aborts the program if
// that happens over verbs while the worker's handshake is on the way. Over TCP and shared memory
// the worker can be destroyed at once: to make its connection first would cost memory for each
// rank, and time when many join.
void Device::end_probe(ucp_worker_h worker) {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  if (devices == end(devices)) return call_.worker_destroy(worker);
  Flush flush = begin_flush(worker);
  const std::uint64_t until = environment().clock->now_ns() + kProbeNs;
  while (!has_ended(&flush) && !UCS_PTR_IS_ERR(flush.request) && environment().clock->now_ns() < until) {
    call_.worker_progress(worker_.worker());
  }
  flush.ended ? call_.worker_destroy(worker) : bury(worker);
}

}  // namespace heddle::transport::ucx
