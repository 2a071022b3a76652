// A worker that is closed while senders are writing into its receives. Rank 1 is a bare transport,
// which takes receives on the board and then does nothing, like a rank that was stopped.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "protocol/tagged.hpp"
#include "transport/test/bare_rank.hpp"
#include "wire/board.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::tagged_close_test {
namespace {

constexpr std::size_t kBytes = 300'000;
constexpr std::uint64_t kTag = 5;
constexpr std::uint64_t kSecond = 1'000'000'000;

// A second goes by with each look.
class StepClock final : public base::Clock {
 public:
  std::uint64_t now_ns() override { return kSecond * ++looks_; }
  [[nodiscard]] std::uint64_t looks() const { return looks_; }

 private:
  std::uint64_t looks_ = 0;
};

class Sender : public transport::BareRank {
 public:
  explicit Sender(bootstrap::inproc::ThreadJob* job) : BareRank(job, 1, "shm"), local_(register_memory(&memory_)) {}
  ~Sender() {
    if (board_memory_) transport().release(*board_memory_);
    transport().deregister(local_);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  [[nodiscard]] wire::Offer offer() const {
    wire::Offer head{kTag, kBytes, 1, 1, {}};
    std::memcpy(head.key, local_.key.bytes.data(), sizeof head.key);
    return head;
  }
  [[nodiscard]] bool post_offer() {
    const wire::Offer head = offer();
    return post(wire::encode_tagged(0, true), &head, sizeof head);
  }
  // Null: the rank has not been told of a board.
  [[nodiscard]] wire::Board* board() {
    std::array<transport::Completion, 16> completions;
    const std::size_t count = worker().poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const transport::Completion& one = completions.at(i);
      if (one.event != transport::Event::message || one.immediate != wire::encode_word(wire::Word::board)) continue;
      const auto name = wire::decode_word<wire::BoardName>({one.data, one.bytes});
      transport::MemoryKey key;
      std::memcpy(key.bytes.data(), name->key, sizeof name->key);
      board_memory_ = *transport().import(0, key);
    }
    return board_memory_ ? reinterpret_cast<wire::Board*>(board_memory_->direct) : nullptr;
  }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  transport::LocalMemory local_;
  std::optional<transport::RemoteMemory> board_memory_;
};

// Nobody is writing into one of the receives: it ends without a wait. The wait for all others
// together is as long as for one.
TEST(TaggedClose, StoppedSendersAreWaitedForTogether) {
  constexpr std::size_t kReceives = 5;
  bootstrap::inproc::ThreadJob job(2);
  auto joined = Context::join({{"inproc", &job, 0}, "shm", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  Context& context = **joined;
  Worker* const worker = *context.open_worker({});
  std::optional<Sender> sender(&job);
  std::vector<std::vector<std::byte>> rooms(kReceives + 1, std::vector<std::byte>(kBytes));
  std::vector<heddle_receive> receives(kReceives + 1);
  const auto post = [&](std::size_t which) {
    return worker->tagged().receive({kTag, protocol::kWholeTag, protocol::source_of({1, 0})},
                                    {rooms[which].data(), kBytes, &receives[which], {}});
  };
  // The first long message: with it the sender is told of a board.
  receives[kReceives].status = HEDDLE_POSTED;
  ASSERT_EQ(post(kReceives), HEDDLE_POSTED);
  ASSERT_TRUE(sender->post_offer());
  wire::Board* board = nullptr;
  ASSERT_TRUE(test::within_time(
      [&] {
        board = sender->board();
        return board != nullptr && receives[kReceives].status == HEDDLE_DONE;
      },
      [&] { EXPECT_GE(worker->progress(), 0); }));
  for (std::size_t i = 0; i < kReceives; ++i) {
    receives[i].status = HEDDLE_POSTED;
    ASSERT_EQ(post(i), HEDDLE_POSTED);
  }
  std::size_t taken = 0;
  for (wire::BoardPlace& place : board->places) {
    const std::uint64_t word = place.word.load(std::memory_order_acquire);
    if (wire::stage_of(word) != wire::Stage::shown) continue;
    place.offer = sender->offer();
    ASSERT_TRUE(wire::take_place(place, word));
    wire::BoardPart part;
    if (taken++ > 0) {
      ASSERT_TRUE(wire::claim_part(place, kBytes, 65536, &part));
    }
  }
  ASSERT_EQ(taken, kReceives);
  StepClock clock;
  context.environment().clock = &clock;
  EXPECT_EQ(context.close_worker(worker), HEDDLE_DONE) << base::last_message();
  context.environment().clock = &context.clock();
  for (const heddle_receive& receive : std::span(receives).first(kReceives)) {
    EXPECT_EQ(receive.status, HEDDLE_ERR_CANCELLED);
  }
  EXPECT_GE(clock.looks(), 10U);
  EXPECT_LE(clock.looks(), 13U);
  std::thread other([&] { sender.reset(); });
  EXPECT_EQ(context.leave(), HEDDLE_DONE);
  other.join();
}

}  // namespace
}  // namespace heddle::worker::tagged_close_test
