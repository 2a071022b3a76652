// For tests: a job whose ranks are threads of this process, over any transport.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/test_support.hpp"
#include "heddle/heddle.hpp"
#include "transport/transport.hpp"
#include "worker/sharing.hpp"

namespace heddle::test {

// A named set of HEDDLE_* settings with a transport, as one parameter of a test.
struct Setting {
  std::string name;  // letters, digits and _, for GoogleTest
  const char* transport;
  std::vector<std::pair<const char*, const char*>> variables;
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.name;
}

inline std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.name;
}

// Sets the variables for its life. The environment is process-wide: not for concurrent tests in one
// process.
class Variables {
 public:
  explicit Variables(const std::vector<std::pair<const char*, const char*>>& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name, value, 1);
  }
  ~Variables() {
    for (const auto& [name, value] : variables_) unsetenv(name);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::pair<const char*, const char*>> variables_;
};

// Makes progress once; with nothing to do it yields the core, since another thread has the answer.
inline void turn(Worker& worker) {
  const int events = worker.progress();
  ASSERT_GE(events, 0) << heddle_last_error();
  if (events == 0) std::this_thread::yield();
}

class Job {
 public:
  explicit Job(std::uint32_t size, const char* transport) : size_(size), transport_(transport) {
    check(heddle_inproc_create(size, &handle_));
  }
  ~Job() { static_cast<void>(heddle_inproc_close(handle_)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] heddle_inproc_job handle() const { return handle_; }

  [[nodiscard]] Context join(std::uint32_t rank) const {
    return Context::join({sizeof(heddle_context_options), "inproc", transport_, handle_, rank, nullptr});
  }

  // Runs `body` once per rank, each in a thread of its own with a context and a worker.
  void run(const std::function<void(Context&, Worker&)>& body) const {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &body] {
        try {
          Context context = join(rank);
          Worker worker = context.open_worker();
          context.barrier(worker);
          body(context, worker);
          context.barrier(worker);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::uint32_t size_;
  const char* transport_;
  heddle_inproc_job handle_{};
};

// The sharing modes, in the order of their numbers; and those that any thread may use.
inline std::vector<heddle_sharing> all_modes() {
  std::vector<heddle_sharing> all;
  for (const worker::Mode& mode : worker::modes()) all.push_back(static_cast<heddle_sharing>(mode.sharing));
  return all;
}
inline std::vector<heddle_sharing> shared_modes() {
  std::vector<heddle_sharing> all = all_modes();
  std::erase(all, HEDDLE_SHARING_EXCLUSIVE);
  return all;
}
inline const char* name_of_mode(heddle_sharing sharing) {
  return worker::mode_numbered(static_cast<std::uint32_t>(sharing))->name;
}
inline std::vector<const char*> names_of(const std::vector<heddle_sharing>& modes) {
  std::vector<const char*> names;
  for (const heddle_sharing mode : modes) names.push_back(name_of_mode(mode));
  return names;
}

// TEST_TRANSPORT=NAME: that one alone; the rest of its setting is in the environment.
inline const std::vector<Setting>& all_settings() {
  static const char* const only = std::getenv("TEST_TRANSPORT");
  static const std::vector<Setting> given = {{"given", only, {}}};
  if (only != nullptr) return given;
  // Every transport that needs no set-up, as it is; then settings that change the way of an
  // operation.
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all;
    for (const transport::TransportRow& entry : transport::table()) {
      std::string name = entry.name;
      std::replace(name.begin(), name.end(), '-', '_');
      if (entry.anywhere) all.push_back({name, entry.name, {}});
    }
    all.insert(
        all.end(),
        {{"shm_commands", "shm", {{"HEDDLE_SHM_DIRECT", "0"}}},
         {"shm_bounce", "shm", {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}}},
         {"joint", "shm,loopback-messages", {{"HEDDLE_NODE_RANKS", "2"}}},
         {"loopback_few_slots", "loopback-messages", {{"HEDDLE_WORKER_OPERATIONS", "16"}}},
         {"fault_loopback", "fault+loopback", {{"HEDDLE_FAULT", "delay=5,reorder=1,again=30"}}},
         {"fault_messages", "fault+loopback-messages", {{"HEDDLE_FAULT", "delay=5,reorder=1,again=30"}}},
         {"fault_shm", "fault+shm", {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_FAULT", "delay=3,reorder=1,again=20"}}}});
    return all;
  }();
  return settings;
}

}  // namespace heddle::test
