#include "transport/verbs/device.hpp"

#include <algorithm>
#include <cstring>

#include "transport/verbs/port.hpp"

namespace heddle::transport::verbs {
namespace {

network::Device::Names names_of(const base::Config& config) {
  return {.transport = "verbs",
          .library = "libibverbs",
          .window_setting = "HEDDLE_VERBS_WINDOW_BYTES",
          .timeout_setting = "HEDDLE_VERBS_TIMEOUT",
          .window = static_cast<std::uint32_t>(config.number(base::Var::verbs_window_bytes)),
          .timeout_ns = config.number(base::Var::verbs_timeout)};
}

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Adapter::Opened opened)
    : network::Device(bootstrap, environment, names_of(environment.config), queue_, nullptr),
      adapters_(std::move(opened.adapters)),
      left_out_(std::move(opened.left_out)),
      queue_(*this),
      events_(*this),
      regions_(*this),
      ports_(max_workers()) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::verbs_library));
  if (!library) return library.status();
  auto opened = Adapter::open(**library, environment.config);
  if (!opened) return opened.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, std::move(*opened)));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = network::check_silence(names().timeout_ns, names().timeout_setting);
      status != HEDDLE_DONE)
    return status;
  if (const base::Status status = queue_.open(); status != HEDDLE_DONE) return status;
  if (const base::Status status = events_.open(queue_.descriptor()); status != HEDDLE_DONE) return status;
  const auto* address = reinterpret_cast<const std::byte*>(&queue_.address());
  if (const base::Status status = publish("", link(), {address, sizeof(Address)}); status != HEDDLE_DONE) return status;
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

bool Device::deliver(std::uint32_t rank, std::uint32_t worker, const Hello& hello) {
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

}  // namespace heddle::transport::verbs
