// The conformance suite: the parts of the contract in transport.hpp that the other files do not
// test.
#include <algorithm>
#include <cstring>
#include <deque>

#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

// Message number n: header and payload of lengths that follow from n.
struct Letter {
  explicit Letter(std::uint32_t n, std::size_t most) : number(n) {
    base::Random random(n);
    header = pattern(n, random.below(2) == 0 ? 0 : random.below(kMaxHeaderBytes + 1));
    const std::size_t room = most - (header.size() + 7) / 8 * 8;
    payload = pattern(n + 1, random.below(12) == 0 ? room - random.below(9) : random.below(200));
  }
  [[nodiscard]] Command to(std::uint32_t rank) {
    Command command = message_to(rank, 0, payload, number);
    command.header = header.data();
    command.header_bytes = static_cast<std::uint32_t>(header.size());
    return command;
  }
  [[nodiscard]] std::vector<std::byte> packet() const {
    std::vector<std::byte> out = header;
    out.resize((header.size() + 7) / 8 * 8);  // no byte of the sender's memory leaks as padding
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
  }
  void spoil() {
    std::fill(header.begin(), header.end(), std::byte{0xEE});
    std::fill(payload.begin(), payload.end(), std::byte{0xEE});
  }

  std::uint32_t number;
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};

// Messages 0 … n-1, each once, unchanged, in order where that is promised.
void expect_letters(World& world, const std::vector<Arrival>& arrivals, std::size_t n) {
  ASSERT_EQ(arrivals.size(), n);
  std::vector<bool> seen(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t number = arrivals[i].immediate;
    ASSERT_LT(number, n);
    ASSERT_FALSE(seen[number]) << number << " came twice";
    seen[number] = true;
    if (world.capabilities().ordered_messages) {
      ASSERT_EQ(number, i) << "out of order";
    }
    ASSERT_EQ(arrivals[i].data, Letter(number, world.capabilities().max_message).packet()) << number;
  }
}

// Inlined and other messages keep one order; the caller may reuse the source of an inlined one at
// once.
TEST_P(Conformance, InlinedMessagesAreMessages) {
  constexpr std::uint32_t kMessages = 800;
  World world(GetParam(), 2);
  Port& from = world.port(0);
  const std::size_t most = world.capabilities().max_message;
  ASSERT_GE(most, Command::kInlineBytes);
  base::Random random(3);
  std::deque<Letter> posted;
  std::uint32_t inlined = 0;
  const Deadline deadline;
  for (std::uint32_t n = 0; n < kMessages;) {
    ASSERT_FALSE(deadline.over()) << n;
    posted.emplace_back(n, most);
    Command command = posted.back().to(1);
    if (random.below(3) != 0) {
      command.set_message(command.header, command.header_bytes, command.local, command.bytes);
    }
    if (command.inlined) posted.back().spoil();
    const bool accepted = from.post_one(command) != 0;
    if (accepted) ++n;
    if (accepted && command.inlined) ++inlined;
    if (!accepted || command.inlined) posted.pop_back();
    if (random.below(4) == 0) world.pump();
  }
  EXPECT_GT(inlined, kMessages / 20);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= kMessages; }));
  ASSERT_TRUE(world.quiet());
  expect_letters(world, world.port(1).arrivals, kMessages);
}

std::vector<std::byte> short_text(std::uint32_t n) {
  base::Random random(n);
  return pattern(n, random.below(2) == 0 ? 8 : random.below(Command::kInlineBytes + 1));
}

// Several inlined messages at once, to two peers; the commands may be overwritten after post().
TEST_P(Conformance, BatchesOfInlinedMessages) {
  constexpr std::uint32_t kMessages = 1200;
  constexpr std::size_t kMost = 24;
  World world(GetParam(), 3);
  Port& from = world.port(0);
  base::Random random(5);
  const auto target_of = [](std::uint32_t n) { return 1 + n / 5 % 2; };
  const Deadline deadline;
  for (std::uint32_t n = 0; n < kMessages;) {
    ASSERT_FALSE(deadline.over()) << n;
    const std::size_t count = std::min<std::size_t>(1 + random.below(kMost), kMessages - n);
    std::vector<Command> batch(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::vector<std::byte> text = short_text(n + i);
      batch[i].rank = target_of(n + i);
      batch[i].immediate = n + i;
      batch[i].set_message(nullptr, 0, text.data(), text.size());
      ASSERT_TRUE(batch[i].inlined);
    }
    n += static_cast<std::uint32_t>(from.post(batch));
    for (Command& command : batch) std::fill_n(command.packet, sizeof command.packet, std::byte{0xEE});
    if (random.below(4) == 0) world.pump();
  }
  EXPECT_EQ(from.post({}), 0U);
  const auto all_here = [&] { return world.port(1).arrivals.size() + world.port(2).arrivals.size() >= kMessages; };
  ASSERT_TRUE(world.until(all_here));
  ASSERT_TRUE(world.quiet());
  std::vector<bool> seen(kMessages);
  for (const std::uint32_t rank : {1U, 2U}) {
    std::uint32_t last = 0;
    for (const Arrival& arrival : world.port(rank).arrivals) {
      const std::uint32_t n = arrival.immediate;
      ASSERT_LT(n, kMessages);
      ASSERT_EQ(target_of(n), rank);
      ASSERT_FALSE(seen[n]) << n << " came twice";
      ASSERT_TRUE(!world.capabilities().ordered_messages || n >= last) << "out of order";
      ASSERT_EQ(arrival.data, short_text(n)) << n;
      seen[n] = true;
      last = n;
    }
  }
}

// After source_free the caller may write to the source, and the receiver still gets the old bytes.
TEST_P(Conformance, FreeSourcesMayBeWritten) {
  constexpr std::uint32_t kMessages = 150;
  World world(GetParam(), 2);
  Port& from = world.port(0);
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    Letter letter(n, world.capabilities().max_message);
    Command command = letter.to(1);
    command.wants_source_free = true;
    const Token token = world.must_post(from, command);
    ASSERT_TRUE(world.until([&] { return from.source_free(token); }));
    letter.spoil();
  }
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= kMessages; }));
  ASSERT_TRUE(world.quiet());
  expect_letters(world, world.port(1).arrivals, kMessages);
}

TEST_P(Conformance, FreeSourcesOfPutsMayBeWritten) {
  World world(GetParam(), 2);
  Port& from = world.port(0);
  for (const std::uint64_t bytes : {8U, 5000U, 40'000U, 700'001U}) {
    std::vector<std::byte> region(bytes);
    auto local = world.transport(1).register_memory(region.data(), bytes);
    ASSERT_TRUE(local.ok()) << base::last_message();
    auto memory = world.transport(0).import(1, local->key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    if ((memory->opcodes & bit(Opcode::put)) == 0) GTEST_SKIP() << "no puts as commands";
    for (std::uint64_t round = 0; round < 8; ++round) {
      const auto expected = pattern(bytes + round, bytes);
      auto source = expected;
      Command put;
      put.opcode = Opcode::put;
      put.wants_source_free = true;
      put.rank = 1;
      put.remote = &*memory;
      put.local = source.data();
      put.bytes = bytes;
      const Token token = world.must_post(from, put);
      ASSERT_TRUE(world.until([&] { return from.source_free(token); }));
      std::fill(source.begin(), source.end(), std::byte{0xEE});
      ASSERT_TRUE(world.until([&] { return from.done(token); }));
      ASSERT_EQ(from.status(token), HEDDLE_DONE);
      ASSERT_TRUE(region == expected) << bytes << " bytes, round " << round;
    }
    world.transport(0).release(*memory);
    world.transport(1).deregister(*local);
  }
}

// If the target is full, the beginning of a batch is accepted; the rest may be posted again
// unchanged.
TEST_P(Conformance, ABatchIsCutWhereTheRoomEnds) {
  World world(GetParam(), 2);
  Port& from = world.port(0);
  const std::size_t most = world.capabilities().max_message;
  constexpr std::size_t kBatch = 24;
  std::deque<Letter> letters;
  std::uint32_t accepted = 0;
  bool cut = false;
  for (int round = 0; round < 40 || (!cut && round < 4000); ++round) {
    while (letters.size() < accepted + kBatch) letters.emplace_back(static_cast<std::uint32_t>(letters.size()), most);
    std::vector<Command> batch;
    for (std::size_t i = 0; i < kBatch; ++i) batch.push_back(letters[accepted + i].to(1));
    const std::size_t n = from.post(batch);
    cut |= n > 0 && n < kBatch;
    accepted += static_cast<std::uint32_t>(n);
    from.poll();
    if (n == 0) world.port(1).poll();
  }
  EXPECT_TRUE(cut);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= accepted; }));
  ASSERT_TRUE(world.quiet());
  expect_letters(world, world.port(1).arrivals, accepted);
}

TEST_P(Conformance, WrongCommandsCompleteWithWhatIsWrong) {
  World world(GetParam(), 2);
  Port& port = world.port(0);
  Command command;
  for (const std::uint32_t rank : {2U, ~0U}) {
    command.rank = rank;
    EXPECT_EQ(world.run(port, command), HEDDLE_ERR_RANK);
  }
  command.rank = 1;
  for (const std::uint32_t worker : {World::kMaxWorkers, ~0U}) {
    command.worker = worker;
    EXPECT_EQ(world.run(port, command), HEDDLE_ERR_RANK);
  }
  command.worker = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{world.capabilities().max_message} + 1, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    command.bytes = bytes;
    EXPECT_EQ(world.run(port, command), HEDDLE_ERR_SIZE) << bytes;
  }
  command.bytes = 8;
  for (const Opcode opcode : {Opcode::put, Opcode::get, Opcode::atomic}) {
    command.opcode = opcode;  // without remote memory
    const base::Status status = world.run(port, command);
    const bool has = (world.capabilities().opcodes & bit(opcode)) != 0;
    // A joint transport refuses an atomic that only the other one of its two has.
    EXPECT_TRUE(status == HEDDLE_ERR_UNSUPPORTED || (has && status == HEDDLE_ERR_ARGUMENT)) << status;
  }
  EXPECT_TRUE(world.port(1).arrivals.empty());
  EXPECT_EQ(world.run(port, message_to(1, 0, {})), HEDDLE_DONE) << "after all this";
}

// No access reaches beyond the region, whatever offset and length are.
TEST_P(Conformance, AccessesThatLeaveTheRegionAreRefused) {
  constexpr std::uint64_t kBytes = 4096;
  World world(GetParam(), 2);
  std::vector<std::byte> around(3 * kBytes, std::byte{0x33});
  auto local = world.transport(1).register_memory(around.data() + kBytes, kBytes);
  ASSERT_TRUE(local.ok()) << base::last_message();
  auto memory = world.transport(0).import(1, local->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> buffer(2 * kBytes, std::byte{0x44});
  struct Access {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  for (const Opcode opcode : {Opcode::put, Opcode::get, Opcode::atomic}) {
    if ((memory->opcodes & bit(opcode)) == 0) continue;
    for (const Access access : {Access{kBytes - 4, 8}, Access{kBytes, 8}, Access{kBytes + 8, 8}, Access{0, kBytes + 1},
                                Access{~std::uint64_t{0} - 7, 8}, Access{~std::uint64_t{0} - 3, kBytes}}) {
      Command command;
      command.opcode = opcode;
      command.rank = 1;
      command.remote = &*memory;
      command.local = buffer.data();
      command.offset = access.offset;
      command.bytes = opcode == Opcode::atomic ? 8 : access.bytes;
      command.atomic_op = HEDDLE_ADD64;
      command.operand = 1;
      if (opcode == Opcode::atomic && access.offset == 0) continue;
      EXPECT_EQ(world.run(world.port(0), command), HEDDLE_ERR_RANGE)
          << static_cast<int>(opcode) << ": " << access.bytes << " at " << access.offset;
    }
  }
  const auto is = [](std::byte value) { return [value](std::byte byte) { return byte == value; }; };
  EXPECT_TRUE(std::all_of(around.begin(), around.end(), is(std::byte{0x33})));
  EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), is(std::byte{0x44})));
  world.transport(0).release(*memory);
  world.transport(1).deregister(*local);
}

// A poll that has no room for a record loses nothing.
TEST_P(Conformance, PollsWithoutRoomLoseNothing) {
  World world(GetParam(), 2);
  const auto data = pattern(8, 100);
  ASSERT_NE(world.must_post(world.port(0), message_to(1, 0, data)), 0U);
  Command wrong = message_to(9, 0, data);
  const Token refused = world.must_post(world.port(0), wrong);
  for (int i = 0; i < 50; ++i) {
    for (const std::uint32_t rank : {0U, 1U}) ASSERT_EQ(world.port(rank).worker().poll({}), 0U);
  }
  ASSERT_TRUE(world.until([&] { return world.port(0).done(refused) && world.port(1).arrivals.size() == 1; }));
  EXPECT_EQ(world.port(0).status(refused), HEDDLE_ERR_RANK);
  EXPECT_EQ(world.port(1).arrivals[0].data, data);
}

TEST_P(Conformance, RegionsOfDeadPeersAreNotImported) {
  World world(GetParam(), 3);
  std::vector<std::byte> bytes(4096);
  auto local = world.transport(2).register_memory(bytes.data(), bytes.size());
  ASSERT_TRUE(local.ok());
  auto met = world.transport(0).import(2, local->key);  // rank 0 knows rank 2, rank 1 does not
  ASSERT_TRUE(met.ok()) << base::last_message();
  world.fail(2);
  EXPECT_EQ(world.transport(0).import(2, local->key).status(), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.transport(1).import(2, local->key).status(), HEDDLE_ERR_PEER_FAILED);
  world.transport(0).release(*met);
}

}  // namespace
}  // namespace heddle::transport::conformance
