#include "transport/verbs/events.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "transport/verbs/device.hpp"

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

}  // namespace heddle::transport::verbs
