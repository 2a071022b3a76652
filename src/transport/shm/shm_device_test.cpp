// First contact: what happens between the request for a peer's card and its arrival.
#include "transport/shm/device.hpp"

#include <atomic>
#include <thread>

#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::shm_device_test {
namespace {

// Cards that are under way for as long as the test wants.
class SlowBootstrap final : public bootstrap::Bootstrap {
 public:
  SlowBootstrap(TestCards& cards, std::uint32_t rank, std::uint32_t size) : cards_(cards, rank, size) {}

  [[nodiscard]] const char* name() const override { return "slow"; }
  [[nodiscard]] std::uint32_t rank() const override { return cards_.rank(); }
  [[nodiscard]] std::uint32_t size() const override { return cards_.size(); }
  [[nodiscard]] const bootstrap::JobSecret& secret() const override { return cards_.secret(); }
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override { return cards_.publish(card); }
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t rank) override {
    asked.fetch_add(1);
    if (failed(rank)) return HEDDLE_ERR_PEER_FAILED;
    const base::Status status = answer.load();
    if (status == HEDDLE_ERR_NO_MEMORY) return base::fail(status, "no descriptor is left");
    if (status != HEDDLE_DONE) return status;
    given.fetch_add(1);
    return cards_.fetch(rank);
  }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte>) override { return HEDDLE_ERR_UNSUPPORTED; }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>*) override {
    return HEDDLE_ERR_UNSUPPORTED;
  }
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return cards_.failed(rank); }
  void leave() override {}
  [[noreturn]] void abort(int code, const char*) override { std::exit(code); }

  std::atomic<base::Status> answer{HEDDLE_AGAIN};
  std::atomic<int> asked{0};
  std::atomic<int> given{0};

 private:
  TestBootstrap cards_;
};

class FirstContact : public testing::Test {
 protected:
  FirstContact() {
    environment_.config = *base::Config::read({});
    environment_.log = base::Log(base::Level::error, 0);
    environment_.clock = &test_clock();
    transport_ = std::move(*open(slow_, environment_));
    worker_ = std::move(*transport_->open_worker(0));
  }
  std::size_t post(Token token) {
    Command command;
    command.rank = 1;
    command.local = text_.data();
    command.bytes = text_.size();
    command.token = token;
    return worker_->post({&command, 1});
  }

  TestCards cards_;
  SlowBootstrap slow_{cards_, 0, 2};
  base::Environment environment_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TransportWorker> worker_;
  std::array<std::byte, 5> text_{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
};

TEST_F(FirstContact, a_post_is_not_accepted_until_the_card_is_there) {
  TestRank peer(cards_, 1, 2);
  Completion none;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(post(1), 0U);
    ASSERT_EQ(worker_->poll({&none, 1}), 0U);
  }
  EXPECT_EQ(slow_.asked.load(), 100);
  slow_.answer = HEDDLE_DONE;
  ASSERT_EQ(post(2), 1U);
  const auto got = peer.poll();
  ASSERT_EQ(got.size(), 1U) << "nothing of what was not accepted";
  EXPECT_TRUE(std::equal(text_.begin(), text_.end(), got[0].data.begin(), got[0].data.end()));
}

TEST_F(FirstContact, a_peer_that_dies_meanwhile_completes_with_peer_failed) {
  TestRank peer(cards_, 1, 2);
  ASSERT_EQ(post(1), 0U);
  {
    const std::lock_guard lock(cards_.mutex);
    cards_.failed[1] = true;
  }
  ASSERT_EQ(post(7), 1U);
  Completion completion;
  ASSERT_EQ(worker_->poll({&completion, 1}), 1U);
  EXPECT_EQ(completion.status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(completion.token, 7U);
}

TEST_F(FirstContact, want_of_descriptors_is_told_by_the_completion_and_passes) {
  TestRank peer(cards_, 1, 2);
  slow_.answer = HEDDLE_ERR_NO_MEMORY;
  ASSERT_EQ(post(3), 1U);
  Completion completion;
  ASSERT_EQ(worker_->poll({&completion, 1}), 1U);
  EXPECT_EQ(completion.status, HEDDLE_ERR_NO_MEMORY);
  slow_.answer = HEDDLE_DONE;
  EXPECT_EQ(post(4), 1U);
  EXPECT_EQ(peer.poll().size(), 1U);
}

TEST_F(FirstContact, what_an_unmet_peer_sends_waits_for_its_card) {
  TestRank peer(cards_, 1, 2);
  ASSERT_TRUE(peer.send(0, text_));
  Completion completion;
  for (const base::Status answer : {HEDDLE_AGAIN, HEDDLE_ERR_NO_MEMORY, HEDDLE_AGAIN}) {
    slow_.answer = answer;
    for (int i = 0; i < 10; ++i) ASSERT_EQ(worker_->poll({&completion, 1}), 0U);
  }
  slow_.answer = HEDDLE_DONE;
  std::size_t got = 0;
  for (int i = 0; i < 3 && got == 0; ++i) got = worker_->poll({&completion, 1});
  ASSERT_EQ(got, 1U) << "the message is lost";
  EXPECT_EQ(completion.bytes, text_.size());
}

TEST_F(FirstContact, an_import_waits_for_the_card) {
  TestRank peer(cards_, 1, 2);
  const auto memory = peer.transport->allocate(4096);
  ASSERT_TRUE(memory.ok());
  std::atomic<bool> imported{false};
  std::thread importer([&] {
    const auto remote = transport_->import(1, memory->key);
    EXPECT_TRUE(remote.ok()) << base::last_message();
    imported = true;
    if (remote) transport_->release(*remote);
  });
  while (slow_.asked.load() < 5) std::this_thread::yield();
  EXPECT_FALSE(imported.load());
  slow_.answer = HEDDLE_DONE;
  importer.join();
}

TEST_F(FirstContact, many_threads_at_once_take_one_card) {
  constexpr std::uint32_t kThreads = 4;
  TestRank peer(cards_, 1, 2);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 1; i <= kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto worker = std::move(*transport_->open_worker(i));
      Command command;
      command.rank = 1;
      command.local = text_.data();
      command.bytes = text_.size();
      while (worker->post({&command, 1}) == 0) std::this_thread::yield();
      EXPECT_TRUE(command.done);
    });
  }
  while (slow_.asked.load() < 20) std::this_thread::yield();
  slow_.answer = HEDDLE_DONE;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slow_.given.load(), 1) << "a card that nobody needs is a descriptor lost";
  std::size_t got = 0;
  for (int i = 0; i < 100 && got < kThreads; ++i) got += peer.poll().size();
  EXPECT_EQ(got, kThreads);
}

}  // namespace
}  // namespace heddle::transport::shm::shm_device_test
