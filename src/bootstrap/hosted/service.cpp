#include "bootstrap/hosted/service.hpp"

#include <pthread.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/quiet_thread.hpp"

namespace heddle::bootstrap::hosted {

Service::Service() : pid_(::getpid()) {}

base::Result<std::unique_ptr<Service>> Service::start() {
  std::unique_ptr<Service> service(new Service());
  try {
    service->thread_ = base::start_quiet_thread([raw = service.get()] { raw->serve(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that calls the launcher: %s", error.what());
  }
  pthread_setname_np(service->thread_.native_handle(), "heddle-launch");
  return service;
}

Service::~Service() {
  if (::getpid() != pid_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.of.notify_all();
    thread_.join();
  }
  changed_.of.~condition_variable();
}

base::Status Service::call(Work work) {
  if (::getpid() != pid_) {
    return base::fail(HEDDLE_ERR_STATE, "the launcher hears the process that joined only, not a child of it");
  }
  auto command = std::make_shared<Command>();
  command->work = std::move(work);
  std::unique_lock lock(mutex_);
  commands_.push_back(command);
  changed_.of.notify_all();
  changed_.of.wait(lock, [&] { return command->done; });
  return command->message.empty() ? command->status : base::fail(command->status, "%s", command->message.c_str());
}

void Service::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.of.wait(lock, [this] { return ending_ || !commands_.empty(); });
    if (commands_.empty()) return;
    const std::shared_ptr<Command> command = std::move(commands_.front());
    commands_.pop_front();
    lock.unlock();
    const base::Status status = command->work();
    command->work = nullptr;  // its contents are destroyed on this thread
    lock.lock();
    command->status = status;
    if (status < 0) command->message = base::last_message();
    command->done = true;
    changed_.of.notify_all();
  }
}

}  // namespace heddle::bootstrap::hosted
