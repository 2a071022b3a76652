// Snapshots of ranks for hang reports, and the verdict on them: any bytes are refused or mean one
// snapshot, and any snapshots give one line of text.
#include "diagnosis/verdict.hpp"
#include "fuzz.hpp"
#include "tap/snapshot.hpp"

namespace {

using heddle::fuzz::require;
namespace diagnosis = heddle::diagnosis;
namespace tap = heddle::tap;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heddle::fuzz::Input input(data, size);
  const std::uint32_t ranks = input.take<std::uint8_t>() % 4 + 1;
  const auto snapshot = tap::decode(input.rest());
  if (!snapshot) return 0;
  const auto again = tap::decode(tap::encode(*snapshot));
  require(again.ok() && *again == *snapshot, "a snapshot is not the same after encoding and decoding");
  std::vector<diagnosis::RankView> views(ranks);
  for (diagnosis::RankView& view : views) view.snapshot = *snapshot;
  const diagnosis::Verdict verdict = diagnosis::judge(views);
  require(!verdict.sentence.empty() && verdict.sentence.find('\n') == std::string::npos, "no line of text");
  for (const std::uint32_t culprit : verdict.culprits) require(culprit < ranks, "a rank that the job does not have");
  return 0;
}
