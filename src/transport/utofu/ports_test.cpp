// Many workers of a rank on the emulator, each used by its own thread: some have a CQ of their own,
// the others share CQs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <utofu.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "transport/test/utofu_side.hpp"
#include "transport/utofu/layout.hpp"

namespace heddle::transport::utofu::ports_test {
namespace {

// Each reading advances the time by a step.
class StepClock final : public base::Clock {
 public:
  std::uint64_t now_ns() override { return now_ns_ += step_ns_; }
  void step(std::uint64_t step_ns) { step_ns_ = step_ns; }

 private:
  std::uint64_t now_ns_ = 1;
  std::uint64_t step_ns_ = 0;
};

// One worker's part: `rounds` times it adds to the common word and sends a message to the other
// rank's worker of the same index.
void exchange(TransportWorker& worker, std::uint32_t rank, std::uint32_t index, const RemoteMemory& word,
              std::atomic<std::uint32_t>* finished, std::uint32_t all, std::uint32_t rounds) {
  const test::Deadline deadline;
  std::uint32_t added = 0;
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  std::uint32_t ended = 0;
  std::uint64_t letter = std::uint64_t{rank} << 32 | index;
  bool told = false;
  while (finished->load() < all && !deadline.over()) {
    Command add;
    add.opcode = Opcode::atomic;
    add.remote = &word;
    add.bytes = 8;
    add.atomic_op = HEDDLE_ADD64;
    add.operand = 1;
    if (added < rounds && worker.post({&add, 1}) == 1) ++added;
    Command message;
    message.rank = 1 - rank;
    message.worker = index;
    message.immediate = sent;
    message.local = &letter;
    message.bytes = sizeof letter;
    if (sent < rounds && worker.post({&message, 1}) == 1) ++sent;
    Completion completions[8];
    const std::size_t count = worker.poll(completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      if (completion.event == Event::done) {
        ASSERT_EQ(completion.status, HEDDLE_DONE) << base::last_message();
        ++ended;
        continue;
      }
      std::uint64_t text = 0;
      ASSERT_EQ(completion.bytes, sizeof text);
      std::memcpy(&text, completion.data, sizeof text);
      ASSERT_EQ(text, std::uint64_t{1 - rank} << 32 | index);
      ASSERT_EQ(completion.immediate, received);
      ASSERT_EQ(completion.worker, index);
      ++received;
    }
    if (count == 0) sched_yield();
    if (!told && received == rounds && ended == 2 * rounds) {
      told = true;
      finished->fetch_add(1);
    }
  }
  EXPECT_TRUE(told) << "rank " << rank << " worker " << index << ": " << received << " received, " << ended << " ended";
}

void run(std::uint32_t workers, const char* exclusive) {
  SCOPED_TRACE(workers);
  constexpr std::uint32_t kRounds = 12;
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM},
                                             {"HEDDLE_UTOFU_EXCLUSIVE", exclusive},
                                             {"HEDDLE_MAX_WORKERS", std::to_string(workers)}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto region = sides[0].transport()->allocate(8);
  ASSERT_TRUE(region.ok()) << base::last_message();
  RemoteMemory words[kRanks];
  std::vector<std::unique_ptr<TransportWorker>> all;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    auto word = sides[rank].transport()->import(0, region->key);
    ASSERT_TRUE(word.ok()) << base::last_message();
    words[rank] = *word;
    for (std::uint32_t i = 0; i < workers; ++i) {
      auto worker = sides[rank].transport()->open_worker(i);
      ASSERT_TRUE(worker.ok()) << base::last_message();
      all.push_back(std::move(*worker));
    }
  }
  std::atomic<std::uint32_t> finished{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const std::uint32_t rank = i / workers;
    threads.emplace_back(
        [&, i, rank] { exchange(*all[i], rank, i % workers, words[rank], &finished, kRanks * workers, kRounds); });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  std::memcpy(&sum, region->address, sizeof sum);
  EXPECT_EQ(sum, std::uint64_t{kRanks} * workers * kRounds);
  all.clear();
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) sides[rank].transport()->release(words[rank]);
  sides[0].transport()->free(*region);
}

TEST(Workers, OneToFortyEightOfARank) {
  run(1, "24");
  run(6, "24");
  run(24, "24");
  run(48, "20");  // the others share those CQs of this process's 54 that are left
  run(40, "48");  // as many as there can be, so that the others find a CQ to share
}

TEST(Workers, AllShareCqs) {
  run(1, "0");
  run(12, "0");
}

// The workers of a rank are spread over its TNIs, and their puts reach the peer through as many
// TNIs.
TEST(Workers, AllocatedRegionsHaveAWayOnEachTni) {
  constexpr std::uint32_t kWorkers = 8;
  void* library = dlopen(HEDDLE_TOFUCOM, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto info = reinterpret_cast<decltype(&utofu_query_vcq_info)>(dlsym(library, "utofu_query_vcq_info"));
  ASSERT_NE(info, nullptr);
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto region = sides[1].transport()->allocate(4096);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0].transport()->import(1, region->key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  const auto* ways = reinterpret_cast<const Way*>(remote->handle[0]);  // NOLINT(performance-no-int-to-ptr)
  std::set<utofu_tni_id_t> tnis;
  for (std::size_t i = 0; i < kMostPorts; ++i) {
    std::uint8_t coordinates[6];
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t cq = 0;
    std::uint16_t extra = 0;
    ASSERT_EQ(info(ways[i].vcq, coordinates, &tni, &cq, &extra), UTOFU_SUCCESS);
    tnis.insert(tni);
  }
  EXPECT_EQ(tnis.size(), kMostPorts);
  std::vector<std::unique_ptr<TransportWorker>> workers;
  for (std::uint32_t i = 0; i < kWorkers; ++i) {
    auto worker = sides[0].transport()->open_worker(i);
    ASSERT_TRUE(worker.ok()) << base::last_message();
    workers.push_back(std::move(*worker));
  }
  for (std::uint32_t i = 0; i < kWorkers; ++i) {
    ASSERT_NO_FATAL_FAILURE(put_word(*workers[i], *remote, 8 * i, 1000 + i));
    EXPECT_EQ(word_at(region->address, 8 * i), 1000 + i);
  }
  // The caller's memory has one port: whichever that is, all workers reach the memory.
  alignas(8) std::byte memory[64] = {};
  for (unsigned turn = 0; turn < kMostPorts; ++turn) {
    auto registered = sides[1].transport()->register_memory(memory, sizeof memory);
    ASSERT_TRUE(registered.ok()) << base::last_message();
    auto theirs = sides[0].transport()->import(1, registered->key);
    ASSERT_TRUE(theirs.ok()) << base::last_message();
    ASSERT_NO_FATAL_FAILURE(put_word(*workers[turn], *theirs, 8, 7 + turn));
    EXPECT_EQ(word_at(memory, 8), 7 + turn);
    sides[0].transport()->release(*theirs);
    sides[1].transport()->deregister(*registered);
  }
  workers.clear();
  sides[0].transport()->release(*remote);
  sides[1].transport()->free(*region);
}

// There are 256 numbers from which peers compute STADDs. Further regions have one way, and the
// numbers of freed regions are used again.
TEST(Workers, MoreRegionsThanNumbers) {
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto opened = sides[0].transport()->open_worker(0);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<LocalMemory> regions;
    std::size_t many = 0;
    for (std::uint64_t i = 0; i < 300; ++i) {
      auto region = sides[1].transport()->allocate(64);
      ASSERT_TRUE(region.ok()) << base::last_message();
      regions.push_back(*region);
      auto remote = sides[0].transport()->import(1, region->key);
      ASSERT_TRUE(remote.ok()) << base::last_message();
      const auto* ways = reinterpret_cast<const Way*>(remote->handle[0]);  // NOLINT(performance-no-int-to-ptr)
      if (ways[0].vcq != ways[1].vcq) ++many;
      ASSERT_NO_FATAL_FAILURE(put_word(**opened, *remote, 8, 500 + i));
      EXPECT_EQ(word_at(region->address, 8), 500 + i);
      sides[0].transport()->release(*remote);
    }
    EXPECT_EQ(many, 256U);
    for (const LocalMemory& region : regions) sides[1].transport()->free(region);
  }
}

// A message to a worker that is not open yet waits in a buffer of the pool. Were the buffer not
// given back, half of the pool would be gone after as many connections, and nothing more would be
// accepted.
TEST(Workers, WhatWaitedForAConnectionGivesItsBufferBack) {
  constexpr std::uint32_t kWorkers = 12;  // more than half of the pool, which has 16 buffers here
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM},
                                             {"HEDDLE_UTOFU_MRQ_DEPTH", "64"},
                                             {"HEDDLE_MAX_WORKERS", std::to_string(kWorkers)}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  auto sender = sides[0].transport()->open_worker(0);
  ASSERT_TRUE(sender.ok()) << base::last_message();
  std::vector<std::unique_ptr<TransportWorker>> receivers;
  for (std::uint32_t number = 0; number < kWorkers; ++number) {
    const std::uint64_t text = 100 + number;
    Command message(1, number, number);
    message.set_message(nullptr, 0, &text, sizeof text);
    ASSERT_EQ((*sender)->post({&message, 1}), 1U) << "the first message to worker " << number << " is not accepted";
    auto receiver = sides[1].transport()->open_worker(number);
    ASSERT_TRUE(receiver.ok()) << base::last_message();
    receivers.push_back(std::move(*receiver));
    const test::Deadline deadline;
    for (bool arrived = false; !arrived;) {
      ASSERT_FALSE(deadline.over());
      Completion completion;
      static_cast<void>((*sender)->poll({&completion, 1}));
      if (receivers.back()->poll({&completion, 1}) == 0) {
        sched_yield();
        continue;
      }
      ASSERT_EQ(completion.event, Event::message);
      EXPECT_EQ(completion.immediate, number);
      arrived = true;
    }
  }
}

TEST(Workers, DepthsThatDifferAreTold) {
  bootstrap::inproc::ThreadJob job(kRanks);
  Side sides[kRanks] = {{job, 0, {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}, {"HEDDLE_UTOFU_MRQ_DEPTH", "1024"}}},
                        {job, 1, {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}, {"HEDDLE_UTOFU_MRQ_DEPTH", "512"}}}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto region = sides[1].transport()->allocate(64);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0].transport()->import(1, region->key);
  ASSERT_FALSE(remote.ok());
  EXPECT_NE(std::strstr(base::last_message(), "HEDDLE_UTOFU_MRQ_DEPTH of rank 1 is 512, of this rank 1024"), nullptr)
      << base::last_message();
  sides[1].transport()->free(*region);
}

// Credit that the library has refused to return is returned later: the sender gets on.
TEST(Workers, RefusedCreditIsNotLost) {
  void* library = dlopen(HEDDLE_SILENT_TOFUCOM, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto refuse = reinterpret_cast<void (*)(std::uint32_t)>(dlsym(library, "silent_tofucom_refuse"));
  ASSERT_NE(refuse, nullptr);
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_SILENT_TOFUCOM},
                                             {"HEDDLE_MAX_WORKERS", "1"}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  std::unique_ptr<TransportWorker> workers[kRanks];
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_NE(sides[rank].transport(), nullptr);
    auto opened = sides[rank].transport()->open_worker(0);
    ASSERT_TRUE(opened.ok()) << base::last_message();
    workers[rank] = std::move(*opened);
  }
  constexpr std::uint32_t kMessages = 10 * kMostSlots;
  refuse(4);  // each returns credit for half a ring
  const test::Deadline deadline;
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  while (received < kMessages && !deadline.over()) {
    Command message;
    message.rank = 1;
    message.immediate = sent;
    if (sent < kMessages && workers[0]->post({&message, 1}) == 1) ++sent;
    for (const auto& worker : workers) {
      Completion completions[8];
      const std::size_t count = worker->poll(completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        ASSERT_EQ(completion.status, HEDDLE_DONE) << base::last_message();
        if (completion.event == Event::message) {
          ASSERT_EQ(completion.immediate, received++);
        }
      }
      if (count == 0) sched_yield();
    }
  }
  EXPECT_EQ(received, kMessages) << sent << " sent";
}

// The NIC meets nobody there before the death is reported: whoever asks why an operation has failed
// must be told which rank it was.
TEST(Workers, APeerThatIsNotMetIsLost) {
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM},
                                             {"HEDDLE_MAX_WORKERS", "1"}};
  std::optional<Side> sides[kRanks];
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) sides[rank].emplace(job, rank, variables);
  auto region = sides[1]->transport()->allocate(8);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0]->transport()->import(1, region->key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  auto worker = sides[0]->transport()->open_worker(0);
  ASSERT_TRUE(worker.ok()) << base::last_message();
  put_word(**worker, *remote, 0, 7);
  EXPECT_EQ(sides[0]->transport()->lost(1), 0U);
  sides[1].reset();
  put_word(**worker, *remote, 0, 8, HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(sides[0]->transport()->lost(1), 0U);
  EXPECT_EQ(sides[0]->transport()->lost(0), 0U);
  worker->reset();
  sides[0]->transport()->release(*remote);
}

// Operations to a rank that has died, for which the NIC gives no answer, fail after ten seconds.
// The worker can be closed, though the NIC may still use the memory of these operations.
TEST(Workers, SilentNodeThatDied) {
  void* library = dlopen(HEDDLE_SILENT_TOFUCOM, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto silence = reinterpret_cast<void (*)(std::uint64_t)>(dlsym(library, "silent_tofucom_set"));
  ASSERT_NE(silence, nullptr);
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_SILENT_TOFUCOM},
                                             // one port: one VCQ falls silent
                                             {"HEDDLE_MAX_WORKERS", "1"}};
  StepClock clock;
  std::vector<std::byte> memory(4096);  // stays registered as long as rank 0 exists
  Side sides[kRanks] = {{job, 0, variables, &clock}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto region = sides[1].transport()->allocate(4096);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0].transport()->import(1, region->key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  auto opened = sides[0].transport()->open_worker(0);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  std::unique_ptr<TransportWorker> worker = std::move(*opened);
  silence(remote->handle[1]);
  std::uint64_t result = 77;
  constexpr std::size_t kCommands = 5;
  Command commands[kCommands];
  for (std::size_t i = 0; i < kCommands; ++i) {
    commands[i].token = i;
    commands[i].rank = 1;
    commands[i].remote = &*remote;
    commands[i].local = memory.data();
    commands[i].bytes = 1024;
  }
  commands[0].opcode = Opcode::get;
  commands[1].opcode = Opcode::put;
  commands[1].wants_source_free = true;
  commands[2].opcode = Opcode::put;
  commands[2].bytes = 8;
  commands[3].opcode = Opcode::atomic;
  commands[3].bytes = 8;
  commands[3].atomic_op = HEDDLE_ADD64;
  commands[3].local = &result;
  commands[4].opcode = Opcode::message;
  ASSERT_EQ(worker->post(commands), kCommands);
  Completion completions[2 * kCommands];
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(worker->poll(completions), 0U) << completions[0].token << " has ended";
  worker->peer_failed(1);
  ASSERT_EQ(worker->poll(completions), 1U) << "the message, of which nothing has left";
  EXPECT_EQ(completions[0].token, 4U);
  EXPECT_EQ(completions[0].status, HEDDLE_ERR_PEER_FAILED);
  ASSERT_EQ(worker->poll(completions), 0U) << "the NIC has time to answer";
  clock.step(9'900'000'000);
  ASSERT_EQ(worker->poll(completions), 0U);
  std::vector<unsigned> done(kCommands);
  unsigned sources = 0;
  const std::size_t count = worker->poll(completions);
  for (const Completion& completion : std::span(completions).first(count)) {
    if (completion.event == Event::source_free) {
      ++sources;
      EXPECT_EQ(completion.token, 1U);
      EXPECT_EQ(done[1], 0U);
      continue;
    }
    ++done[completion.token];
    EXPECT_EQ(completion.status, HEDDLE_ERR_PEER_FAILED);
  }
  EXPECT_EQ(done, (std::vector<unsigned>{1, 1, 1, 1, 0}));
  EXPECT_EQ(sources, 1U);
  EXPECT_EQ(result, 77U);
  ASSERT_EQ(worker->poll(completions), 0U) << "each of them once";
  worker.reset();
  silence(0);
  sides[0].transport()->release(*remote);
  sides[1].transport()->free(*region);
}

// The same with a node that seems to live and gives no answer, for example because its processes
// were stopped. Closing ends all the same, logs what is lost, and keeps the VCQ to the end of the
// process.
class SilentNode : public testing::TestWithParam<Opcode> {};

TEST_P(SilentNode, ThatLives) {
  void* library = dlopen(HEDDLE_SILENT_TOFUCOM, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto silence = reinterpret_cast<void (*)(std::uint64_t)>(dlsym(library, "silent_tofucom_set"));
  ASSERT_NE(silence, nullptr);
  const auto freed = reinterpret_cast<std::uint32_t (*)()>(dlsym(library, "silent_tofucom_freed"));
  ASSERT_NE(freed, nullptr);
  const std::uint32_t freed_before = freed();
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_SILENT_TOFUCOM},
                                             {"HEDDLE_MAX_WORKERS", "1"}};  // one port, as above
  StepClock clock;
  std::vector<std::byte> memory(4096);  // stays registered as long as the process exists
  std::optional<Side> sides[kRanks];
  sides[0].emplace(job, 0, variables, &clock);
  sides[1].emplace(job, 1, variables);
  ASSERT_NE(sides[0]->transport(), nullptr);
  ASSERT_NE(sides[1]->transport(), nullptr);
  auto region = sides[1]->transport()->register_memory(memory.data(), memory.size());
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0]->transport()->import(1, region->key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  clock.step(10'000'000);
  auto worker = sides[0]->transport()->open_worker(0);
  ASSERT_TRUE(worker.ok()) << base::last_message();
  silence(remote->handle[1]);
  Command command;
  command.rank = 1;
  command.opcode = GetParam();
  command.remote = &*remote;
  command.local = memory.data();
  command.bytes = 1024;
  ASSERT_EQ((*worker)->post({&command, 1}), 1U);
  const std::uint64_t before = clock.now_ns();
  testing::internal::CaptureStderr();
  worker->reset();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::uint64_t took = clock.now_ns() - before;
  silence(0);
  EXPECT_GE(took, 10'000'000'000U);
  EXPECT_LE(took, 10'100'000'000U);
  EXPECT_NE(said.find("operations under way that have not ended in 10 s"), std::string::npos) << said;
  EXPECT_EQ(said.find("with 1 messages that have not left in 10 s; they are lost") != std::string::npos,
            GetParam() == Opcode::message)
      << said;
  sides[0]->transport()->release(*remote);
  sides[1]->transport()->deregister(*region);
  for (auto& side : sides) side.reset();
  EXPECT_EQ(freed(), freed_before);
}

INSTANTIATE_TEST_SUITE_P(Opcodes, SilentNode, testing::Values(Opcode::put, Opcode::get, Opcode::message),
                         [](const auto& tested) {
                           return "opcode_" + std::to_string(static_cast<unsigned>(tested.param));
                         });

// Rank 0 of two, which gets its own card as that of rank 1: the same VCQ, as if each rank had an
// emulated machine of its own.
class OwnWorld : public bootstrap::Bootstrap {
 public:
  explicit OwnWorld(bootstrap::inproc::ThreadJob& job) : real_(std::move(*bootstrap::inproc::open(job, 0))) {}
  [[nodiscard]] const char* name() const override { return "own world"; }
  [[nodiscard]] std::uint32_t rank() const override { return 0; }
  [[nodiscard]] std::uint32_t size() const override { return kRanks; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const override { return real_->secret(); }
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override {
    bytes_ = card.bytes;
    return HEDDLE_DONE;
  }
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t) override {
    bootstrap::Card card;
    card.bytes = bytes_;
    return card;
  }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte>) override { return HEDDLE_ERR_UNSUPPORTED; }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>*) override {
    return HEDDLE_ERR_UNSUPPORTED;
  }
  [[nodiscard]] bool failed(std::uint32_t) const override { return false; }
  void leave() override {}
  [[noreturn]] void abort(int, const char*) override { std::abort(); }

 protected:
  std::unique_ptr<bootstrap::Bootstrap> real_;

 private:
  decltype(bootstrap::Card::bytes) bytes_;
};

TEST(Workers, RanksOfTwoMachinesDoNotMeet) {
  bootstrap::inproc::ThreadJob job(kRanks);
  OwnWorld own(job);
  base::SystemClock clock;
  base::Environment environment;
  environment.config = *base::Config::read(base::Config::Overrides{{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}});
  environment.log = base::Log(base::Level::error, 0);
  environment.clock = &clock;
  auto transport = open(own, environment);
  ASSERT_TRUE(transport.ok()) << base::last_message();
  auto worker = (*transport)->open_worker(0);
  ASSERT_TRUE(worker.ok()) << base::last_message();
  Command message;
  message.rank = 1;
  ASSERT_EQ((*worker)->post({&message, 1}), 1U);
  EXPECT_NE(std::strstr(base::last_message(), "ranks 0 and 1 have the same VCQ"), nullptr) << base::last_message();
  EXPECT_NE(std::strstr(base::last_message(), "heddle run --utofu"), nullptr) << base::last_message();
  Completion completion;
  ASSERT_EQ((*worker)->poll({&completion, 1}), 1U);
  EXPECT_EQ(completion.status, HEDDLE_ERR_CONFIG);
}

// Rank 0, for which the others' cards are under way until hand_on() is called, as if the process
// that hands them on were stopped.
class LateCards final : public OwnWorld {
 public:
  using OwnWorld::OwnWorld;
  void hand_on() { here_ = true; }
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override { return real_->publish(card); }
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t rank) override {
    if (!here_) return HEDDLE_AGAIN;
    return real_->fetch(rank);
  }

 private:
  bool here_ = false;
};

// A thread that makes progress does not wait for a card that does not come.
TEST(Workers, AnImportWaitsForNobodysCard) {
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
  Side owner(job, 1, variables);
  LateCards late(job);
  base::SystemClock clock;
  base::Environment environment;
  environment.config = *base::Config::read(variables);
  environment.log = base::Log(base::Level::error, 0);
  environment.clock = &clock;
  auto transport = open(late, environment);
  ASSERT_TRUE(transport.ok()) << base::last_message();
  auto region = owner.transport()->allocate(64);
  ASSERT_TRUE(region.ok()) << base::last_message();
  EXPECT_EQ((*transport)->try_import(1, region->key.front()).status(), HEDDLE_AGAIN);
  late.hand_on();
  auto remote = (*transport)->try_import(1, region->key.front());
  ASSERT_TRUE(remote.ok()) << base::last_message();
  (*transport)->release(*remote);
  owner.transport()->free(*region);
}

}  // namespace
}  // namespace heddle::transport::utofu::ports_test
