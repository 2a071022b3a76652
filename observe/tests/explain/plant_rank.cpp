// Programs over the C API with one planted delay each.
#include <atomic>
#include <thread>
#include <vector>

#include "plant_common.h"
#include "tests/system/rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint64_t kAnyTag = UINT64_MAX;
constexpr std::size_t kLong = std::size_t{4} << 20;

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  heddle_team team{};
  std::uint32_t number = 0;
  std::uint32_t size = 0;
  std::vector<char> memory = std::vector<char>(kLong);
} g_rank;
std::atomic<std::uint32_t> g_arrived{0};

void meet() {
  done(heddle_context_barrier(g_rank.context, g_rank.worker, HEDDLE_FOREVER), "barrier");
}

void count(const heddle_am_arrival*, void*) {
  g_arrived.fetch_add(1, std::memory_order_relaxed);
}

void answer(const heddle_am_arrival* arrival, void*) {
  heddle_am_message message{};
  message.handler = 1;
  accepted(heddle_am(g_rank.worker, arrival->source, &message, nullptr), "answer");
}

void send_to(std::uint32_t rank, std::uint32_t handler) {
  heddle_am_message message{};
  message.handler = handler;
  accepted(heddle_am(g_rank.worker, {rank, 0}, &message, nullptr), "am");
  done(heddle_quiet(g_rank.worker), "quiet");
}

void await_messages(std::uint32_t number) {
  while (g_arrived.load(std::memory_order_relaxed) < number) {
    const heddle_status status = heddle_worker_wait(g_rank.worker, HEDDLE_FOREVER);
    check(status >= 0, "worker_wait");
  }
}

heddle_receive receive(std::uint32_t from, std::uint64_t tag, void* data, std::size_t bytes) {
  heddle_receive made{};
  const heddle_wanted wanted{{from, 0}, tag, kAnyTag};
  accepted(heddle_recv(g_rank.worker, &wanted, data, bytes, &made, nullptr), "recv");
  return made;
}

// ---- delays -------------------------------------------------------------------------------------

void late_message(std::int64_t ns) {
  meet();
  if (g_rank.number == 1) {
    plant_compute(ns);
    send_to(0, 1);
    plant_truth("late sender", 1, ns);
  } else {
    await_messages(1);
  }
}

void late_to_barrier(std::int64_t ns) {
  meet();
  if (g_rank.number == 1) plant_compute(ns);
  meet();
  if (g_rank.number == 1) plant_truth("late in a collective", 1, ns * (g_rank.size - 1));
}

// Rank 1 gets the request at once, and sees it after it has computed.
void late_answer(std::int64_t ns) {
  meet();
  if (g_rank.number == 1) {
    plant_compute(ns);
    plant_truth("no progress", 1, ns);
  } else {
    send_to(1, 2);
    await_messages(1);
  }
  meet();
}

// The judge forbids reading the peer's memory: rank 1 has to serve it.
void late_get(std::int64_t ns) {
  heddle_region region{};
  done(heddle_region_register(g_rank.context, g_rank.memory.data(), kLong, &region), "register");
  std::vector<heddle_remote_region> regions(g_rank.size);
  done(heddle_region_exchange(g_rank.context, region, regions.data()), "exchange");
  meet();
  if (g_rank.number == 1) {
    plant_compute(ns);
    plant_truth("no progress", 1, ns);
  } else {
    std::vector<char> got(4096);
    done(heddle_get_wait(g_rank.worker, got.data(), got.size(), {regions[1], 0}), "get");
  }
  meet();
}

void late_receive(std::int64_t ns) {
  meet();
  if (g_rank.number == 0) {
    accepted(heddle_send(g_rank.worker, {1, 0}, 7, g_rank.memory.data(), kLong, nullptr), "send");
    done(heddle_quiet(g_rank.worker), "quiet");
  } else {
    plant_compute(ns);
    heddle_receive room = receive(0, 7, g_rank.memory.data(), kLong);
    done(heddle_recv_wait(g_rank.worker, &room, HEDDLE_FOREVER), "recv_wait");
    plant_truth("late receiver", 1, ns);
  }
  meet();
}

// More messages than there is credit for, and a receiver that comes late.
void no_credit(std::int64_t ns) {
  constexpr std::uint32_t kMany = 4000;
  constexpr std::size_t kBytes = 1024;
  meet();
  if (g_rank.number == 0) {
    for (std::uint32_t i = 0; i < kMany; ++i) {
      accepted(heddle_send(g_rank.worker, {1, 0}, 7, g_rank.memory.data(), kBytes, nullptr), "send");
    }
    done(heddle_quiet(g_rank.worker), "quiet");
  } else {
    // It probes for messages, and receives none.
    const std::int64_t end = plant_now() + ns;
    while (plant_now() < end) static_cast<void>(heddle_worker_progress(g_rank.worker));
    for (std::uint32_t i = 0; i < kMany; ++i) {
      heddle_receive room = receive(0, 7, g_rank.memory.data(), kBytes);
      done(heddle_recv_wait(g_rank.worker, &room, HEDDLE_FOREVER), "recv_wait");
    }
    plant_truth("credit used up", 1, ns);
  }
  meet();
}

// Messages of class USER, whose handlers rank 1 does not run.
void no_credit_for_tasks(std::int64_t ns) {
  constexpr std::uint32_t kMany = 3000;
  meet();
  if (g_rank.number == 0) {
    for (std::uint32_t i = 0; i < kMany; ++i) {
      heddle_am_message message{};
      message.handler = HEDDLE_AM_USER;
      accepted(heddle_am(g_rank.worker, {1, 0}, &message, nullptr), "am");
    }
    done(heddle_quiet(g_rank.worker), "quiet");
  } else {
    const std::int64_t end = plant_now() + ns;
    while (plant_now() < end) static_cast<void>(heddle_worker_progress(g_rank.worker));
    while (g_arrived.load(std::memory_order_relaxed) < kMany) {
      check(heddle_run_tasks(g_rank.worker, 64, HEDDLE_FOREVER) >= 0, "run_tasks");
    }
    plant_truth("credit used up", 1, ns);
  }
  meet();
}

void no_overlap(std::int64_t ns) {
  std::vector<double> mine(100'000, 1);
  std::vector<double> sum(mine.size());
  const heddle_reduction add{HEDDLE_DOUBLE, HEDDLE_SUM, nullptr, nullptr, 0};
  heddle_collective under_way{};
  meet();
  accepted(heddle_allreduce_start(g_rank.team, mine.data(), sum.data(), mine.size(), &add, &under_way), "allreduce");
  if (g_rank.number == 1) plant_compute(ns);
  done(heddle_collective_wait(under_way, HEDDLE_FOREVER), "wait");
  if (g_rank.number == 1) plant_truth("no progress", 1, ns * (g_rank.size - 1));
}

void no_core(std::int64_t ns) {
  meet();
  if (g_rank.number == 1) {
    const pid_t rival = plant_rival();
    const std::int64_t took = plant_work(ns);
    plant_release(rival);
    send_to(0, 1);
    plant_truth("no free core", 1, took - ns);
  } else {
    await_messages(1);
  }
}

// The copies of messages that came too early: as long as those of the same bytes by memcpy.
void unexpected(std::int64_t) {
  constexpr std::uint32_t kMany = 2000;
  constexpr std::size_t kBytes = 1024;
  std::vector<char> rooms(kMany * kBytes);
  for (int round = 0; round < 8; ++round) {
    meet();
    if (g_rank.number == 0) {
      for (std::uint32_t i = 0; i < kMany / 10; ++i) {
        accepted(heddle_send(g_rank.worker, {1, 0}, i, g_rank.memory.data(), kBytes, nullptr), "send");
      }
      done(heddle_quiet(g_rank.worker), "quiet");
    }
    meet();
    if (g_rank.number != 1) continue;
    for (std::uint32_t i = 0; i < kMany / 10; ++i) {
      heddle_receive room = receive(0, i, &rooms[i * kBytes], kBytes);
      done(heddle_recv_wait(g_rank.worker, &room, HEDDLE_FOREVER), "recv_wait");
    }
  }
  if (g_rank.number == 1) plant_truth("unexpected copy", 1, -8 * std::int64_t{kMany} / 10 * std::int64_t{kBytes});
  meet();
}

// Puts to memory that only its owner has mapped.
void not_mapped(std::int64_t) {
  heddle_region region{};
  done(heddle_region_register(g_rank.context, g_rank.memory.data(), kLong, &region), "register");
  std::vector<heddle_remote_region> regions(g_rank.size);
  done(heddle_region_exchange(g_rank.context, region, regions.data()), "exchange");
  std::vector<char> source(kLong, 'x');
  meet();
  if (g_rank.number == 0) {
    const std::int64_t begin = plant_now();
    for (int i = 0; i < 10; ++i) {
      accepted(heddle_put(g_rank.worker, source.data(), kLong, {regions[1], 0}, nullptr), "put");
      done(heddle_quiet(g_rank.worker), "quiet");
    }
    plant_truth("copied, not mapped", 0, plant_now() - begin);
  }
  meet();
}

void join() {
  done(heddle_context_join(nullptr, &g_rank.context), "join");
  done(heddle_context_rank(g_rank.context, &g_rank.number), "rank");
  done(heddle_context_size(g_rank.context, &g_rank.size), "size");
  done(heddle_worker_open(g_rank.context, nullptr, &g_rank.worker), "worker");
  done(heddle_am_register(g_rank.context, 1, &count, nullptr), "register");
  done(heddle_am_register(g_rank.context, 2, &answer, nullptr), "register");
  done(heddle_am_register(g_rank.context, HEDDLE_AM_USER, &count, nullptr), "register");
  done(heddle_team_world(g_rank.context, &g_rank.team), "team");
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  static const plant kPlants[] = {{"late_message", 2, late_message},
                                  {"late_to_barrier", 3, late_to_barrier},
                                  {"late_answer", 2, late_answer},
                                  {"late_get", 2, late_get},
                                  {"late_receive", 2, late_receive},
                                  {"no_credit", 2, no_credit},
                                  {"no_credit_for_tasks", 2, no_credit_for_tasks},
                                  {"no_overlap", 3, no_overlap},
                                  {"no_core", 2, no_core},
                                  {"unexpected", 2, unexpected},
                                  {"not_mapped", 2, not_mapped}};
  const plant* const one = plant_chosen(argc, argv, kPlants, static_cast<int>(std::size(kPlants)));
  join();
  one->run(plant_length(argc, argv));
  done(heddle_team_free(g_rank.team), "team_free");
  done(heddle_context_leave(g_rank.context), "leave");
}
