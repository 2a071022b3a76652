#include "transport/ucx/device.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "transport/network/transport.hpp"
#include "transport/ucx/port.hpp"
#include "transport/ucx/ucx.hpp"

namespace heddle::transport::ucx {

namespace {

constexpr std::uint64_t kNewsNs =
    2'000'000'000;  // until a death is known: a second, and one more for a machine under load
constexpr std::uint64_t kCloseNs = 2'000'000'000;

}  // namespace

base::Status DeviceWorker::open() {
  lines_.resize(device_.size());
  const ucs_status_t status = create_worker(call_, device_.context(), &worker_);
  if (status != UCS_OK) return device_.no_worker(status);
  return listen(call_, worker_, kNoteId, on_note, this);
}

void DeviceWorker::end() {
  network::Directory& directory = device_.directory();
  directory.disconnect_all();
  base::Clock& clock = *device_.environment().clock;
  const std::uint64_t until = clock.now_ns() + kCloseNs;
  while (closes() && clock.now_ns() < until) directory.work();
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

// ---- connections --------------------------------------------------------------------------------

// Nobody promises that UCX's versions are compatible, unless they differ in the last number only.
base::Status DeviceWorker::check_card(const network::CardHead& card, std::uint32_t rank) const {
  const std::string theirs = card.version;
  const std::string& mine = device_.library().version();
  const auto series = [](const std::string& of) { return of.substr(0, of.rfind('.')); };
  if (series(theirs) == series(mine)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_VERSION, "rank %u has UCX %s, this rank %s; use one UCX in all ranks (HEDDLE_LIBRARIES)",
                    rank, theirs.c_str(), mine.c_str());
}

DeviceWorker::Line& DeviceWorker::line(std::uint32_t rank) {
  auto& known = lines_[rank];
  if (known != nullptr) return *known;
  auto made = std::make_unique<Line>();
  made->from = this;
  made->rank = rank;
  made->tried_since = device_.environment().clock->now_ns();
  make_room(&closing_, known_lines_ + 1);  // so that closing needs no memory
  ++known_lines_;
  known = std::move(made);
  return *known;
}

// A rank that has just died cannot be reached either, and the bootstrap reports that later: this
// gives it time for that.
base::Status DeviceWorker::connect(std::uint32_t rank, std::span<const std::byte> address) {
  Line& to = line(rank);
  const bool last = device_.environment().clock->now_ns() - to.tried_since >= kNewsNs;
  std::optional<Library::Hush> hush;
  if (!last) hush.emplace();
  const ucs_status_t status = device_.connect(worker_, address.data(), on_broken, &to, &to.endpoint);
  if (status == UCS_OK) return HEDDLE_DONE;
  if (status == UCS_ERR_NO_MEMORY)
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a connection to rank %u", rank);
  if (!last) return HEDDLE_AGAIN;
  return base::fail(HEDDLE_ERR_CONFIG, "UCX finds no route to rank %u: %s; look at HEDDLE_UCX_TLS and UCX_TLS", rank,
                    call_.status_string(status));
}

// Called within UCX's progress: the directory has the endpoint closed afterwards.
void DeviceWorker::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  const Line& line = *static_cast<const Line*>(arg);
  Device& device = line.from->device_;
  device.directory().broken(line.rank, line.from->call_.status_string(status));
}

void DeviceWorker::disconnect(std::uint32_t rank) {
  Line* line = lines_[rank].get();
  if (line == nullptr || line->endpoint == nullptr || !device_.recovers()) return;
  void* request = force_close(call_, std::exchange(line->endpoint, nullptr));
  if (request != nullptr) closing_.push_back(request);
}

// ---- notes --------------------------------------------------------------------------------------

base::Status DeviceWorker::send(std::uint32_t rank, Bytes* note) {
  Line* line = lines_[rank].get();
  if (line == nullptr || line->endpoint == nullptr) return HEDDLE_ERR_PEER_FAILED;
  auto sent_note = std::make_unique<Sent>(Sent{{}, this});
  sent_note->bytes = std::move(*note);
  void* request = send_message(call_, line->endpoint, kNoteId, sent_note->bytes.data(), sent_note->bytes.size(),
                               on_sent, sent_note.get());
  if (request == nullptr) return HEDDLE_DONE;
  if (UCS_PTR_IS_ERR(request)) {
    on_broken(line, line->endpoint, UCS_PTR_STATUS(request));
    return HEDDLE_ERR_PEER_FAILED;
  }
  ++sending_;
  static_cast<void>(sent_note.release());  // on_sent() frees it
  return HEDDLE_DONE;
}

void DeviceWorker::on_sent(void* request, ucs_status_t, void* user) {
  const std::unique_ptr<Sent> sent_note(static_cast<Sent*>(user));
  --sent_note->from->sending_;
  sent_note->from->call_.request_free(request);
}

ucs_status_t DeviceWorker::on_note(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  const bool here = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && header_bytes == 0;
  Device& device = static_cast<DeviceWorker*>(arg)->device_;
  // of 0 bytes: it is malformed
  device.directory().note(static_cast<const std::byte*>(data), here ? bytes : 0);
  return UCS_OK;
}

bool DeviceWorker::progress() {
  const bool some = call_.worker_progress(worker_) != 0;
  std::erase_if(closing_, [this](void* request) {
    if (call_.request_check_status(request) == UCS_INPROGRESS) return false;
    call_.request_free(request);
    return true;
  });
  return some;
}

namespace {

constexpr std::uint64_t kProbeNs = 5'000'000'000;

constexpr network::Device::Names kNames{
    .transport = "ucx", .library = "UCX", .usual_window = 42 << 10, .least_window = 24 << 10};

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
      network::Device(bootstrap, environment, kNames, worker_, &regions_),
      library_(library),
      call_(library.call()) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::library_ucx));
  if (!library) return library.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, **library));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = network::Device::check_settings(environment().config, kNames); status != HEDDLE_DONE)
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
         named(network::named_devices(config)) + ", windows of " + std::to_string(window()) + " bytes)";
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
      {"NET_DEVICES", network::named_devices(environment().config)},
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
                    "UCX %s %s; look at HEDDLE_UCX_TLS=\"%s\", HEDDLE_NET_DEVICES=\"%s\" and the UCX_* variables%s",
                    library_.version().c_str(), what.c_str(), environment().config.text(base::Var::ucx_tls).c_str(),
                    network::named_devices(environment().config).c_str(),
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

// Destroys a rank's device.

namespace {

// How long UCX's operations may take to end when their rank ends, if the peers do nothing.
constexpr std::uint64_t kFlushNs = 200'000'000;

// All ports of this device are of this transport.
Port* port_of(network::Port* port) {
  return static_cast<Port*>(port);
}

}  // namespace

// Accepted messages leave, as long as the peers make progress; then connections are closed,
// whatever the peers do.
Device::~Device() {
  helper().stop();
  const std::lock_guard lock(mutex());
  ucp_context_h const context = context_;  // take_down() may leave it to the process
  if (worker_.worker() != nullptr) {
    leave();
    take_down();
  }
  // Only now: transfers of peers to these regions may arrive while closed ports make progress.
  regions_.deregister_all(context);
  if (context_ != nullptr) call_.cleanup(context_);
}

Device::Flush Device::begin_flush(ucp_worker_h worker) const {
  const ucp_request_param_t params{};
  void* request = call_.worker_flush_nbx(worker, &params);
  return {worker, request, request == nullptr};
}

bool Device::has_ended(Flush* flush) const {
  if (flush->ended || UCS_PTR_IS_ERR(flush->request)) return flush->ended;
  call_.worker_progress(flush->worker);
  if (call_.request_check_status(flush->request) == UCS_INPROGRESS) return false;
  call_.request_free(flush->request);
  return flush->ended = true;
}

// Flushes of the device worker, then of the closed ports; a null worker: the port has orphans, and
// nobody waits for it. An endpoint that still answers its peer's handshake must not be cut off: UCX
// 1.13 aborts. Such a worker does not end its flush, and is left as it is.
std::vector<Device::Flush> Device::flush_all() {
  std::vector<Flush> flushes;
  flushes.push_back(begin_flush(worker_.worker()));
  for (const auto& retired_port : retired()) {
    Port* port = port_of(retired_port.get());
    flushes.push_back(port->transfers().has_orphans() ? Flush{nullptr, nullptr, false} : begin_flush(port->worker()));
  }
  const std::uint64_t until = environment().clock->now_ns() + kFlushNs;
  const auto all_ended = [&] {
    bool all = true;
    for (Flush& flush : flushes) all = (flush.worker == nullptr || has_ended(&flush)) && all;
    return all;
  };
  while (!all_ended() && environment().clock->now_ns() < until) sched_yield();
  return flushes;
}

void Device::bury(void* object) {
  buried_ = true;
  Library::bury(object);
}

void Device::take_down() {
  const std::vector<Flush> flushes = flush_all();
  for (std::size_t i = 0; i < retired().size(); ++i) {
    std::unique_ptr<network::Port> port = std::move(retired()[i]);
    if (flushes[i + 1].ended) {
      port_of(port.get())->end();
    } else {
      bury(port.release());
    }
  }
  retired().clear();
  flushes[0].ended ? worker_.end() : bury(worker_.worker());
  if (!buried_) return;
  Library::bury(context_);
  context_ = nullptr;
  environment().log.line(base::Level::info,
                         "what UCX has begun with peers that do not answer stays until the process ends");
}

namespace {

class UcxTransport final : public network::TransportOf<Device, Port> {
 public:
  // Owns the device.
  explicit UcxTransport(Device* device)
      : TransportOf(device, device->memory_opcodes(), KeyBytes::kUsed), regions_(device->regions()) {}

  void release(const RemoteMemory& memory) override { regions_.release(memory); }

 private:
  Regions& regions_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  return Library::open(environment.config.text(base::Var::library_ucx)).status();
}

}  // namespace heddle::transport::ucx
