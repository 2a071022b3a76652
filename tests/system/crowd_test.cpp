// 64 processes over ucx: all meet all; all send to one that is slow. What it takes is printed; what
// must not grow is checked.
#include "launched.hpp"

namespace heddle::tests {
namespace {

constexpr long long kKiB = 1024;
constexpr int kRanks = 64;
// Crowded as well: alone, other threads of UCX's would do the work, and keep memory of their own.
constexpr int kFew = 16;

Launched run(int ranks, const std::vector<std::string>& mode) {
  std::vector<std::string> words = {HEDDLE_TOOL,
                                    "run",
                                    "-n",
                                    std::to_string(ranks),
                                    "--timeout",
                                    "85",
                                    "--env",
                                    "HEDDLE_TRANSPORTS=ucx",
                                    "--env",
                                    "HEDDLE_UCX_TLS=tcp",
                                    HEDDLE_CROWD_RANK};
  words.insert(words.end(), mode.begin(), mode.end());
  return Launched(words);
}

long long said(const Launched& job, const std::string& word) {
  const auto numbers = job.numbers(word);
  EXPECT_EQ(numbers.size(), 1U) << word << ": " << job.out();
  return numbers.empty() ? -1 : numbers[0];
}

void expect_well(Launched* job, int ranks) {
  ASSERT_EQ(job->wait(), 0) << job->err();
  EXPECT_EQ(job->numbers("left").size(), static_cast<std::size_t>(ranks));
}

// A rank that is not met costs next to nothing, one that is met its connections and the room for
// its messages.
TEST(Crowd, AllMeetAll) {
  Launched few = run(kFew, {"known"});
  expect_well(&few, kFew);
  Launched job = run(kRanks, {"all"});
  expect_well(&job, kRanks);
  const long long known = (said(job, "anon") - said(few, "anon")) / (kRanks - kFew);
  const long long met = said(job, "peer");
  std::printf("all %d met all in %lld ms; memory for a known peer %lld bytes, for one that is met %lld bytes\n", kRanks,
              said(job, "took"), known, met);
  EXPECT_LE(known, 4 * kKiB);
  EXPECT_LE(met, 64 * kKiB);
}

// What all have sent together is 15 times what may be on its way.
TEST(Crowd, AllSendToOneThatIsSlow) {
  constexpr int kMessages = 180;
  Launched job = run(kRanks, {"incast", std::to_string(kMessages)});
  expect_well(&job, kRanks);
  const long long receiver = said(job, "receiver");
  const long long sender = said(job, "sender");
  std::printf(
      "%lld of %d messages were on their way when nobody could send; the receiver grew by %lld KiB, a sender by %lld "
      "KiB\n",
      said(job, "stuck"), kMessages * (kRanks - 1), receiver / kKiB, sender / kKiB);
  EXPECT_LE(receiver, (kRanks - 1) * 72 * kKiB) << "61 are measured, 64 are the goal; pages come in lots";
  EXPECT_LE(sender, 4096 * kKiB);
}

}  // namespace
}  // namespace heddle::tests
