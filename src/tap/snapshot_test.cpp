#include "tap/snapshot.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.hpp"

namespace heddle::tap::snapshot_test {
namespace {

using base::Random;

std::string text(Random& random, std::size_t most = 20) {
  std::string made(random.below(most + 1), ' ');
  for (char& c : made) c = static_cast<char>('!' + random.below(90));
  return made;
}

Awaited awaited(Random& random) {
  return {static_cast<Cause>(random.below(static_cast<std::uint64_t>(kLastCause) + 1)),
          static_cast<std::uint32_t>(random.next()),
          static_cast<std::uint32_t>(random.next()),
          random.next(),
          text(random),
          text(random)};
}

Step step(Random& random) {
  return {random.next(), random.next(), static_cast<std::uint32_t>(random.next()), text(random), text(random)};
}

template <class T, class Make>
void fill(Random& random, std::vector<T>& list, Make&& make) {
  for (std::uint64_t left = random.below(5); left > 0; --left) list.push_back(make(random));
}

Wait wait(Random& random) {
  Wait made{text(random), text(random), random.next(), static_cast<std::uint32_t>(random.next()), kNobody, {}, {}};
  fill(random, made.things, awaited);
  if (random.below(2) == 0) made.step = step(random);
  return made;
}

WorkerState worker(Random& random) {
  WorkerState made{
      static_cast<std::uint32_t>(random.next()), random.below(2) == 0, random.below(2) == 0, random.next(), {}, {}};
  fill(random, made.under_way, awaited);
  fill(random, made.kept, [](Random& from) {
    return Kept{static_cast<std::uint32_t>(from.next()), static_cast<std::uint32_t>(from.next()), from.next(),
                text(from)};
  });
  fill(random, made.unopened, [](Random& from) {
    return Unopened{static_cast<std::uint32_t>(from.next()), static_cast<std::uint32_t>(from.next()), from.next()};
  });
  return made;
}

Snapshot snapshot(Random& random) {
  Snapshot made;
  fill(random, made.waits, wait);
  fill(random, made.workers, worker);
  fill(random, made.steps, step);
  fill(random, made.lines, [](Random& from) { return text(from, 100); });
  return made;
}

TEST(Snapshot, ComesBackAsItWas) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    const Snapshot made = snapshot(random);
    const auto back = decode(encode(made));
    ASSERT_TRUE(back.ok()) << base::last_message();
    EXPECT_EQ(*back, made);
  }
}

TEST(Snapshot, EveryPartOfOneIsRefused) {
  Random random(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> bytes = encode(snapshot(random));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      // A copy of that length, so that AddressSanitizer sees a byte too many that is read.
      const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      ASSERT_EQ(decode(part).status(), HEDDLE_ERR_PROTOCOL) << length << " of " << bytes.size();
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).ok());
  }
}

TEST(Snapshot, WrongBytesAreRefusedOrGiveSomethingWithinTheLimits) {
  Random random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = encode(snapshot(random));
    for (std::uint64_t flips = 1 + random.below(4); flips > 0; --flips) {
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1U << random.below(8));
    }
    const auto back = decode(bytes);
    if (!back.ok()) continue;
    EXPECT_LE(back->waits.size(), kMostListed);
    for (const Wait& each : back->waits) {
      EXPECT_LE(each.call.size(), kMostText);
      for (const Awaited& thing : each.things) EXPECT_LE(thing.cause, kLastCause);
    }
  }
}

TEST(Snapshot, ALengthThatExceedsTheBytesTakesNoMemory) {
  std::vector<std::byte> bytes = encode({});
  const std::uint16_t many = 64;
  std::memcpy(bytes.data() + 4, &many, sizeof many);  // of waits
  EXPECT_EQ(decode(bytes).status(), HEDDLE_ERR_PROTOCOL);
}

TEST(Snapshot, LongListsAndTextsAreCut) {
  Snapshot made;
  made.waits.resize(kMostListed + 1);
  made.waits[0].call = std::string(kMostText - 1, 'x') + "\xc3\xa9";  // an e with an accent
  made.lines.resize(300, "line");
  const auto back = decode(encode(made));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->waits.size(), kMostListed);
  EXPECT_EQ(back->waits[0].call, std::string(kMostText - 1, 'x'));
  EXPECT_EQ(back->lines.size(), 256U);
}

TEST(Snapshot, ControlCharactersBecomeSpaces) {
  Snapshot made;
  made.lines = {"a\x1b[2Jb\nc\x7f",
                "d\xc2\x9b"
                "2J\xc3\xa9"};
  const auto back = decode(encode(made));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->lines[0], "a [2Jb c ");
  EXPECT_EQ(back->lines[1], "d  2J\xc3\xa9");
}

TEST(Snapshot, TheWaitsAreWhatIsKeptOfOneThatIsTooLong) {
  Awaited thing;
  thing.what = thing.tag = std::string(kMostText, 'x');
  Wait wait;
  wait.call = wait.awaited = thing.what;
  wait.things.resize(kMostListed, thing);
  WorkerState worker;
  worker.under_way = wait.things;
  worker.kept.resize(kMostListed, {0, 0, 1, thing.tag});
  Snapshot made;
  made.waits.resize(kMostListed, wait);
  made.workers.resize(kMostListed, worker);
  made.lines.push_back("a line");

  const std::vector<std::byte> bytes = encode(made);
  EXPECT_LE(bytes.size(), kMostBytes);
  const auto back = decode(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->waits, made.waits);
  EXPECT_TRUE(back->lines.empty());
  EXPECT_TRUE(back->workers.empty());
}

}  // namespace
}  // namespace heddle::tap::snapshot_test
