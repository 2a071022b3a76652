// A rank for hosts_test.py: works with its partner, half the job away and so on the other host,
// until something happens.
//   link_rank link KINDS         until an operation says PEER_FAILED, though the partner lives: the
//                                network between them is cut
//   link_rank death KINDS        until an operation says PEER_FAILED, as the partner has been
//                                killed
//   link_rank file:PATH KINDS    until there is a file PATH; nothing may fail
// KINDS: names of operations, separated by commas; rank r of the first half, and its partner, take
// one by r. "receive": after some messages each waits for one that never comes.
// Prints "busyR PID" when it works, "told R" and "left R".
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::size_t kRegionBytes = std::size_t{512} << 10;
constexpr std::size_t kLarge = std::size_t{256} << 10;
constexpr std::uint32_t kHandler = 3;
constexpr std::uint64_t kRoundsUntilBusy = 50;
constexpr std::uint64_t kTag = 5;
constexpr std::uint64_t kNeverSent = 6;

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::uint32_t partner = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(kRegionBytes);
  std::vector<heddle_remote_region> regions;
};

// One operation in flight with the memory that belongs to it.
struct Slot {
  std::vector<std::byte> data = std::vector<std::byte>(kLarge);
  std::uint64_t result = 0;
  heddle_receive receive{};
  bool under_way = false;
  heddle_status ended = HEDDLE_DONE;
};

void finished(void* arg, heddle_status status) {
  Slot& slot = *static_cast<Slot*>(arg);
  check(slot.under_way, "a completion comes twice");
  slot.under_way = false;
  if (status != HEDDLE_DONE) slot.ended = status;
}

using Post = heddle_status (*)(Rank&, Slot&, const heddle_completion*);

heddle_remote target(const Rank& rank) {
  return {rank.regions[rank.partner], 64};
}
template <std::size_t kBytes>
heddle_status post_put(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_put(rank.worker, slot.data.data(), kBytes, target(rank), completion);
}
template <std::size_t kBytes>
heddle_status post_get(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_get(rank.worker, slot.data.data(), kBytes, target(rank), completion);
}
heddle_status post_fetch(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_fetch fetch{1, 0, &slot.result};
  return heddle_try_fetch_atomic(rank.worker, HEDDLE_ADD64, {rank.regions[rank.partner], 0}, &fetch, completion);
}
heddle_status post_am(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_am_message message{kHandler, 0, nullptr, slot.data.data(), 200};
  return heddle_try_am(rank.worker, {rank.partner, 0}, &message, completion);
}
heddle_status post_send(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_send(rank.worker, {rank.partner, 0}, kTag, slot.data.data(), 200, completion);
}
// Nobody sends this.
heddle_status post_receive(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_wanted wanted{{rank.partner, HEDDLE_ANY}, kNeverSent, UINT64_MAX};
  return heddle_try_recv(rank.worker, &wanted, slot.data.data(), slot.data.size(), &slot.receive, completion);
}

struct Operation {
  const char* name;
  Post post;
};
constexpr auto kOperations = std::to_array<Operation>({{"put", post_put<64>},
                                                       {"put-large", post_put<kLarge>},
                                                       {"get", post_get<64>},
                                                       {"get-large", post_get<kLarge>},
                                                       {"fetch", post_fetch},
                                                       {"am", post_am},
                                                       {"send", post_send},
                                                       {"receive", post_receive}});

Post operation_named(const std::string& name) {
  const auto found = std::find_if(kOperations.begin(), kOperations.end(),
                                  [&](const Operation& operation) { return operation.name == name; });
  check(found != kOperations.end(), "an operation of this name");
  return found->post;
}

void on_message(const heddle_am_arrival* message, void*) {
  check(message->payload_bytes == 200, "a message's size");
}

class Work {
 public:
  Work(Rank& rank, Post post) : rank_(rank), post_(post) {}

  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }

  // Until `over`, or an operation fails: then true. What is under way has ended afterwards.
  template <class Over>
  bool run(Over over) {
    const Deadline deadline("neither an error nor an end comes");
    while (!over() && !failed()) {
      for (Slot& slot : slots_) try_one(slot);
      turn();
      if (is_busy() && !std::exchange(told_busy_, true)) {
        say(("busy" + std::to_string(rank_.rank)).c_str(), ::getpid());
      }
      deadline.idle();
    }
    const Deadline ending("an operation never ends");
    while (std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.under_way; })) {
      turn();
      ending.idle();
    }
    return failed();
  }
  // A posted receive that nothing comes for.
  void end() {
    if (receive_.under_way) done(heddle_recv_cancel(rank_.worker, &receive_.receive), "cancel");
    const Deadline deadline("a cancelled receive does not end");
    while (receive_.under_way) {
      check(heddle_worker_progress(rank_.worker) >= 0, "progress");
      deadline.idle();
    }
  }

 private:
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool is_busy() const {
    return post_ == post_receive ? rounds_ == slots_.size() : rounds_ >= kRoundsUntilBusy;
  }

  void judge(heddle_status status, const char* what) {
    if (status >= 0) return;
    expect(status, HEDDLE_ERR_PEER_FAILED, what);
    failed_ = true;
  }

  void try_one(Slot& slot) {
    if (slot.under_way || failed_) return;
    judge(slot.ended, "a completion");
    const heddle_completion completion{finished, &slot, {}, HEDDLE_WHEN_REMOTE};
    slot.under_way = true;
    const heddle_status status = post_(rank_, slot, &completion);
    if (status != HEDDLE_POSTED) slot.under_way = false;
    if (status != HEDDLE_AGAIN) ++rounds_;
    judge(status, "a call");
  }

  void turn() {
    check(heddle_worker_progress(rank_.worker) >= 0, "progress");
    for (const Slot& slot : slots_) judge(slot.ended, "a completion");
    if (post_ != post_send || receive_.under_way) return;
    const heddle_completion completion{finished, &receive_, {}, HEDDLE_WHEN_REMOTE};
    const heddle_wanted wanted{{HEDDLE_ANY, HEDDLE_ANY}, kTag, UINT64_MAX};
    receive_.under_way = true;
    const heddle_status status = heddle_try_recv(rank_.worker, &wanted, receive_.data.data(), receive_.data.size(),
                                                 &receive_.receive, &completion);
    if (status != HEDDLE_POSTED) receive_.under_way = false;
    if (status < 0) expect(status, HEDDLE_ERR_PEER_FAILED, "recv");
  }

  Rank& rank_;
  const Post post_;
  std::array<Slot, 3> slots_;
  Slot receive_;
  std::uint64_t rounds_ = 0;
  bool told_busy_ = false;
  bool failed_ = false;
};

void run(const std::string& until, const std::string& kinds) {
  ::signal(SIGUSR1, SIG_IGN);  // by which hydra tells of a death
  Rank rank;
  std::uint32_t size = 0;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_context_size(rank.context, &size), "size");
  check(size % 2 == 0, "an even number of ranks");
  rank.partner = (rank.rank + size / 2) % size;
  std::vector<std::string> names;
  std::istringstream all(kinds);
  for (std::string one; std::getline(all, one, ',');) names.push_back(one);
  done(heddle_am_register(rank.context, kHandler, on_message, nullptr), "handler");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  heddle_region region{};
  done(heddle_region_register(rank.context, rank.memory.data(), rank.memory.size(), &region), "register");
  rank.regions.resize(size);
  done(heddle_region_exchange(rank.context, region, rank.regions.data()), "exchange");

  const Post post = operation_named(names[rank.rank % (size / 2) % names.size()]);
  if (post == post_receive) {
    Work talk(rank, post_send);
    check(!talk.run([&] { return talk.rounds() >= kRoundsUntilBusy / 2; }), "a send fails, and nothing is cut");
    talk.end();
  }
  Work work(rank, post);
  if (until.rfind("file:", 0) == 0) {
    const std::string path = until.substr(5);
    check(!work.run([&] { return ::access(path.c_str(), F_OK) == 0; }), "an operation fails, and nobody has");
  } else {
    check(work.run([] { return false; }), "an error");
    say("told", rank.rank);
  }
  // The launcher's network is another one: living ranks meet there.
  std::vector<std::uint32_t> ranks(size);
  const heddle_status met = heddle_context_exchange(rank.context, &rank.rank, sizeof rank.rank, ranks.data());
  expect(met, until == "death" ? HEDDLE_ERR_PEER_FAILED : HEDDLE_DONE, "the last exchange");
  work.end();
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 3, "usage: link_rank link|death|file:PATH KIND[,KIND…]");
  run(argv[1], argv[2]);
  return 0;
}
