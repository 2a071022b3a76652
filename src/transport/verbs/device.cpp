#include "transport/verbs/device.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/network/transport.hpp"
#include "transport/verbs/port.hpp"
#include "transport/verbs/verbs.hpp"

namespace heddle::transport::verbs {

base::Status Events::open(int channel) {
  watched_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!watched_.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "no descriptor for the adapters' events");
  if (const base::Status status = watch(channel); status != HEDDLE_DONE) return status;
  for (const auto& adapter : device_.adapters()) {
    const int descriptor = adapter->context()->async_fd;
    if (::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK) != 0)
      return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no descriptor of its events", adapter->name().c_str());
    if (const base::Status status = watch(descriptor); status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

base::Status Events::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(watched_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "a descriptor of the adapters cannot be watched");
}

void Events::read() {
  for (const auto& adapter : device_.adapters()) {
    if (!adapter->failed()) read(*adapter);
  }
}

// The object that an event names exists until the event is acknowledged: the end of the object
// waits for that.
void Events::read(Adapter& adapter) {
  ibv_async_event event{};
  while (adapter.call().get_async_event(adapter.context(), &event) == 0) {
    take(adapter, event);
    adapter.call().ack_async_event(&event);
    if (adapter.failed()) return;
  }
  if (errno != EAGAIN && errno != EINTR) fail(adapter, std::strerror(errno));  // it was taken out
}

// Its descriptor may be readable for ever.
void Events::fail(Adapter& adapter, const char* why) {
  device_.log().line(base::Level::error,
                     "the adapter %s has failed (%s): what is under way over it ends with PEER_FAILED, and so does "
                     "what follows",
                     adapter.name().c_str(), why);
  static_cast<void>(::epoll_ctl(watched_.get(), EPOLL_CTL_DEL, adapter.context()->async_fd, nullptr));
  device_.note_failed(adapter);
}

void Events::take(Adapter& adapter, const ibv_async_event& event) {
  const char* const what = adapter.call().event_type_str(event.event_type);
  const char* const name = adapter.name().c_str();
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      return fail(adapter, what);
    case IBV_EVENT_CQ_ERR:
      return fail_queue(adapter, event.element.cq->cq_context, what);
    case IBV_EVENT_SRQ_ERR:
      return fail_queue(adapter, event.element.srq->srq_context, what);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      // the next request to the peer fails, at the latest the one that asks a silent peer
      return device_.log().line(base::Level::info, "queue pair %u of %s has an error (%s): its peer is lost soon",
                                event.element.qp->qp_num, name, what);
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
      if (event.element.port_num == adapter.port()) take_port(adapter, event.event_type);
      return;
    default:  // of a pair that ends: QP_LAST_WQE_REACHED
      return device_.log().line(base::Level::debug, "%s: %s", name, what);
  }
}

void Events::take_port(const Adapter& adapter, ibv_event_type type) {
  const char* const name = adapter.name().c_str();
  if (type == IBV_EVENT_PORT_ERR) {
    device_.log().line(base::Level::warn,
                       "the port %s is down: what is under way waits for it for seconds, then its peers are lost",
                       name);
  } else if (type == IBV_EVENT_PORT_ACTIVE) {
    device_.log().line(base::Level::warn, "the port %s is up again", name);
  } else {
    device_.log().line(base::Level::info, "the port %s may have another address (%s), where no peer reaches it", name,
                       adapter.call().event_type_str(type));
  }
}

// A queue of `worker` has failed; null: the queue for notes.
void Events::fail_queue(const Adapter& adapter, const void* worker, const char* what) {
  device_.log().line(base::Level::error, "a queue of %s has failed (%s): %s", adapter.name().c_str(), what,
                     worker != nullptr ? "what its worker has under way ends with PEER_FAILED"
                                       : "this rank connects to no other any more");
  device_.note_failed_queue(worker);
}

namespace {

constexpr network::Device::Names kNames{
    .transport = "verbs", .library = "libibverbs", .usual_window = 8 << 10, .least_window = 8 << 10};

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Adapter::Opened opened)
    : network::Device(bootstrap, environment, kNames, queue_, nullptr),
      adapters_(std::move(opened.adapters)),
      left_out_(std::move(opened.left_out)),
      queue_(*this),
      events_(*this),
      regions_(*this),
      ports_(max_workers()) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::library_verbs));
  if (!library) return library.status();
  auto opened = Adapter::open(**library, environment.config);
  if (!opened) return opened.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, std::move(*opened)));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = network::Device::check_settings(environment().config, kNames); status != HEDDLE_DONE)
    return status;
  if (const base::Status status = queue_.open(); status != HEDDLE_DONE) return status;
  if (const base::Status status = events_.open(queue_.descriptor()); status != HEDDLE_DONE) return status;
  const auto* address = reinterpret_cast<const std::byte*>(&queue_.address());
  if (const base::Status status = publish("", link(), {address, sizeof(PortAddress)}); status != HEDDLE_DONE)
    return status;
  return helper().start(events_.descriptor());
}

std::string Device::describe() const {
  std::string names;
  for (const auto& adapter : adapters_) names += (names.empty() ? "" : " and ") + adapter->name();
  return "verbs (" + names + ", " + link() + ", windows of " + std::to_string(window()) + " bytes" +
         (left_out_.empty() ? "" : "; left out: " + left_out_) + ")";
}

void Device::enter(Port& port) {
  const std::lock_guard lock(mutex());
  ports_[port.index()] = &port;
}

void Device::leave(const Port& port) {
  const std::lock_guard lock(mutex());
  ports_[port.index()] = nullptr;
}

bool Device::deliver(std::uint32_t rank, std::uint32_t worker, const Handshake& hello) {
  if (worker >= ports_.size() || ports_[worker] == nullptr || hello.worker >= max_workers() ||
      hello.adapter >= kMostAdapters)
    return false;
  ports_[worker]->deliver({rank, hello});
  return true;
}

bool Device::goes_on_without(const Adapter& adapter) const {
  return adapter.failed() && std::ranges::any_of(adapters_, [](const auto& one) { return !one->failed(); });
}

void Device::note_failed(Adapter& failed) {
  failed.note_failed();
  if (&failed == &adapter()) queue_.lose();
  for (Port* port : ports_) {
    if (port == nullptr) continue;
    if (&port->adapter() == &failed) {
      port->note_failed();
    } else {
      port->note_other_failed();
    }
  }
  directory().note_learned();
}

// It may have left already, and then has nothing under way.
void Device::note_failed_queue(const void* owner) {
  if (owner == nullptr) return queue_.lose();
  for (Port* port : ports_) {
    if (port == owner) port->note_failed();
  }
  directory().note_learned();
}

// Accepted messages leave, as long as the peers make progress; then everything is closed, whatever
// the peers do.
Device::~Device() {
  helper().stop();
  if (queue_.is_open()) network::Device::leave();
  retired().clear();
  queue_.close();
  regions_.deregister_all();
}

namespace {

class VerbsTransport final : public network::TransportOf<Device, Port> {
 public:
  // Owns the device.
  explicit VerbsTransport(Device* device) : TransportOf(device, bit(Opcode::put) | bit(Opcode::get), KeyBytes::kUsed) {
    capabilities_.max_message = kMostMessage;
    for (const auto& adapter : device->adapters())
      capabilities_.max_transfer = std::min<std::uint64_t>(capabilities_.max_transfer, adapter->most_bytes());
    capabilities_.memory_per_peer = std::uint64_t{sizeof(MailboxHead)} + device->window() + kMostMessage;
  }
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  if (const auto status = Adapter::check_settings(environment.config); status != HEDDLE_DONE) return status;
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  if (const auto status = Adapter::check_settings(environment.config); status != HEDDLE_DONE) return status;
  const auto library = Library::open(environment.config.text(base::Var::library_verbs));
  if (!library) return library.status();
  return Adapter::open(**library, environment.config).status();
}

}  // namespace heddle::transport::verbs
