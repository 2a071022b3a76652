// A rank for handler_test.cpp: code of the application that the library runs in rank 1 throws; the
// first argument says which. The others wait for rank 1, are told, and leave. Prints "survived
// RANK".
#include <stdexcept>
#include <string_view>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kThrower = 1;
constexpr std::uint32_t kNetwork = 7;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 7;
constexpr std::uint32_t kIgnored = 8;

void throws(const heddle_am_arrival*, void*) {
  throw std::runtime_error("thrown by a handler");
}
void ignore(const heddle_am_arrival*, void*) {}
void callback(void*, heddle_status) {
  throw std::runtime_error("thrown by a callback");
}
void call(void*) {
  throw std::runtime_error("thrown by a call");
}

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
};

[[noreturn]] void be_the_thrower(const Rank& rank, std::string_view what) {
  const Deadline deadline("what was thrown has not ended the process");
  std::vector<std::byte> large(std::size_t{1} << 20);
  if (what == "callback") {  // large, so that its end is told by a callback
    const heddle_completion completion{callback, nullptr, {}, HEDDLE_WHEN_REMOTE};
    const heddle_am_message message{kIgnored, 0, nullptr, large.data(), large.size()};
    accepted(heddle_am(rank.worker, {0, 0}, &message, &completion), "am");
  }
  if (what == "call") accepted(heddle_run_on_engine(rank.worker, call, nullptr, nullptr), "run_on_engine");
  for (;;) {
    check(heddle_run_tasks(rank.worker, 1, 1'000'000) >= 0, "run_tasks");
    deadline.idle();
  }
}

void wait_for_the_thrower(const Rank& rank, std::string_view what) {
  if (rank.rank == 0 && (what == "network" || what == "user")) {
    const heddle_am_message message{what == "user" ? kUser : kNetwork, 0, nullptr, nullptr, 0};
    accepted(heddle_am(rank.worker, {kThrower, 0}, &message, nullptr), "am");
  }
  expect(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), HEDDLE_ERR_PEER_FAILED, "barrier");
  done(heddle_context_leave(rank.context), "leave");
  say("survived", rank.rank);
}

int run(std::string_view what) {
  Rank rank;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  done(heddle_am_register(rank.context, kNetwork, throws, nullptr), "register");
  done(heddle_am_register(rank.context, kUser, throws, nullptr), "register");
  done(heddle_am_register(rank.context, kIgnored, ignore, nullptr), "register");
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
  if (rank.rank == kThrower) be_the_thrower(rank, what);
  wait_for_the_thrower(rank, what);
  return 0;
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  return heddle::tests::run(argc > 1 ? argv[1] : "network");
}
