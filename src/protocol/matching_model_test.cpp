// Random operations on Matching and on a model, which is just two lists searched from the front.
// After each operation both must agree. A sequence that fails is shrunk (operations are removed
// while it still fails) and then printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "protocol/matching.hpp"

namespace heddle::protocol::matching_model_test {
namespace {

enum class Kind : std::uint8_t { post, arrive, drop, cancel, probe, take, forget, kCount };
constexpr const char* kNames[] = {"post", "arrive", "arrive, not kept", "cancel", "probe", "probe and take", "forget"};

// Valid whatever comes before it, so that any step of a sequence can be removed.
struct Step {
  Kind kind = Kind::post;
  std::uint64_t tag = 0;
  std::uint64_t mask = kWholeTag;
  heddle_peer peer{};       // of a receive: kAnyNumber as the rank or the worker
  std::uint64_t which = 0;  // cancel: modulo the receives that were ever posted. arrive: the bytes
};
using Steps = std::vector<Step>;

std::string text_of(const Steps& steps) {
  std::string text;
  for (const Step& step : steps) {
    char line[160];
    std::snprintf(line, sizeof line, "  %s tag %" PRIx64 " mask %" PRIx64 " rank %d worker %d which %" PRIu64 "\n",
                  kNames[static_cast<std::size_t>(step.kind)], step.tag, step.mask, static_cast<int>(step.peer.rank),
                  static_cast<int>(step.peer.worker), step.which);
    text += line;
  }
  return text;
}

// ---- the model ----------------------------------------------------------------------------------

struct Rules {
  bool latest_receive = false;  // wrong on purpose, to see that the test finds it
  bool any_is_forgotten = false;
};

class Model {
 public:
  struct Receive {
    std::size_t id;
    Step wanted;
  };
  struct Message {
    std::size_t id;
    Step what;
  };
  explicit Model(Rules rules) : rules_(rules) {}

  static bool fits(const Step& wanted, const Step& message) {
    if ((wanted.tag & wanted.mask) != (message.tag & wanted.mask)) return false;
    if (wanted.peer.rank == kAnyNumber) return true;
    if (wanted.peer.rank != message.peer.rank) return false;
    return wanted.peer.worker == kAnyNumber || wanted.peer.worker == message.peer.worker;
  }
  std::optional<std::size_t> find_message(const Step& wanted, bool remove) {
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [&](const Message& message) { return fits(wanted, message.what); });
    if (found == messages.end()) return std::nullopt;
    const std::size_t id = found->id;
    if (remove) messages.erase(found);
    return id;
  }
  std::optional<std::size_t> find_receive(const Step& message) {
    auto found = receives.end();
    for (auto it = receives.begin(); it != receives.end() && (found == receives.end() || rules_.latest_receive); ++it) {
      if (fits(it->wanted, message)) found = it;
    }
    if (found == receives.end()) return std::nullopt;
    const std::size_t id = found->id;
    receives.erase(found);
    return id;
  }
  bool cancel(std::size_t id) {
    return std::erase_if(receives, [id](const Receive& receive) { return receive.id == id; }) != 0;
  }
  void forget(std::uint32_t rank, std::vector<std::size_t>* gone_receives, std::vector<std::size_t>* gone_messages) {
    std::erase_if(receives, [&](const Receive& receive) {
      const std::uint32_t of = receive.wanted.peer.rank;
      if (of != rank && !(rules_.any_is_forgotten && of == kAnyNumber)) return false;
      gone_receives->push_back(receive.id);
      return true;
    });
    std::erase_if(messages, [&](const Message& message) {
      if (message.what.peer.rank != rank) return false;
      gone_messages->push_back(message.id);
      return true;
    });
  }

  std::vector<Receive> receives;
  std::vector<Message> messages;

 private:
  Rules rules_;
};

// ---- both, side by side -------------------------------------------------------------------------

struct NumberedReceive : PostedReceive {
  std::size_t id = 0;
};
struct NumberedMessage : KeptMessage {
  std::size_t id = 0;
};

class Pair {
 public:
  Pair(Matching::Options options, Rules rules) : matching_(options), model_(rules) {}

  // Empty: both agree.
  std::string step(const Step& step) {
    switch (step.kind) {
      case Kind::post:
        return post(step);
      case Kind::arrive:
        return arrive(step, true);
      case Kind::drop:
        return arrive(step, false);
      case Kind::cancel:
        return cancel(step);
      case Kind::probe:
        return probe(step, false);
      case Kind::take:
        return probe(step, true);
      case Kind::forget:
        return forget(step);
      case Kind::kCount:
        break;
    }
    return "no such step";
  }

  std::string same_content() const {
    std::vector<std::size_t> receives;
    std::vector<std::size_t> messages;
    std::vector<std::size_t> model_receives;
    std::vector<std::size_t> model_messages;
    std::uint64_t bytes = 0;
    matching_.each_receive([&](const PostedReceive& node) { receives.push_back(id_of(&node)); });
    matching_.each_message([&](const KeptMessage& node) { messages.push_back(id_of(&node)); });
    for (const auto& receive : model_.receives) model_receives.push_back(receive.id);
    for (const auto& message : model_.messages) {
      model_messages.push_back(message.id);
      bytes += message.what.which;
    }
    // in no order; those of the model are in the order of their numbers
    std::sort(receives.begin(), receives.end());
    std::sort(model_receives.begin(), model_receives.end());
    if (receives != model_receives) return "other receives are stored";
    if (messages != model_messages) return "other messages are kept, or in another order";
    if (matching_.receives() != receives.size()) return "receives() is wrong";
    if (matching_.messages() != messages.size()) return "messages() is wrong";
    if (matching_.bytes() != bytes) return "bytes() is wrong";
    return {};
  }

 private:
  static std::size_t id_of(const PostedReceive* node) { return static_cast<const NumberedReceive*>(node)->id; }
  static std::size_t id_of(const KeptMessage* node) { return static_cast<const NumberedMessage*>(node)->id; }
  template <class Node>
  static std::string compare(const Node* node, std::optional<std::size_t> expected, bool stays = false) {
    const std::string got = node == nullptr ? "none" : std::to_string(id_of(node));
    const std::string should = expected ? std::to_string(*expected) : "none";
    if (got != should) return "got " + got + ", expected " + should;
    return node == nullptr || node->stored() == stays ? "" : "stored() is wrong";
  }
  static Wanted wanted_of(const Step& step) {
    const Source source = step.peer.rank == kAnyNumber ? kAnySource : source_of(step.peer);
    return {step.tag, step.mask, source};
  }

  std::string post(const Step& step) {
    NumberedReceive& node = receives_.emplace_back();
    node.id = receives_.size() - 1;
    node.wanted = wanted_of(step);
    const auto expected = model_.find_message(step, true);
    if (!expected) model_.receives.push_back({node.id, step});
    return compare(matching_.post(&node), expected);
  }
  std::string arrive(const Step& step, bool keep) {
    const auto expected = model_.find_receive(step);
    const PostedReceive* const receive = matching_.arrive(step.tag, source_of(step.peer));
    if (receive == nullptr && !expected && keep) {
      NumberedMessage& node = messages_.emplace_back();
      node.id = messages_.size() - 1;
      node.tag = step.tag;
      node.source = source_of(step.peer);
      node.bytes = step.which;
      matching_.keep(&node);
      model_.messages.push_back({node.id, step});
    }
    return compare(receive, expected);
  }
  std::string cancel(const Step& step) {
    if (receives_.empty()) return {};
    NumberedReceive& node = receives_[step.which % receives_.size()];
    return matching_.cancel(&node) == model_.cancel(node.id) ? "" : "cancel differs";
  }
  std::string probe(const Step& step, bool take) {
    const auto expected = model_.find_message(step, take);
    KeptMessage* const message = matching_.probe(wanted_of(step));
    if (message != nullptr && take) matching_.take(message);
    return compare(message, expected, !take);
  }
  std::string forget(const Step& step) {
    std::vector<std::size_t> model_receives;
    std::vector<std::size_t> model_messages;
    std::vector<std::size_t> receives;
    std::vector<std::size_t> messages;
    model_.forget(step.peer.rank, &model_receives, &model_messages);
    const auto removed = matching_.forget([&](std::uint32_t rank) { return rank == step.peer.rank; });
    for (auto* node = removed.receives; node != nullptr; node = Matching::after(node)) receives.push_back(id_of(node));
    for (auto* node = removed.messages; node != nullptr; node = Matching::after(node)) messages.push_back(id_of(node));
    std::sort(receives.begin(), receives.end());
    std::sort(model_receives.begin(), model_receives.end());
    if (receives != model_receives) return "other receives were forgotten";
    return messages == model_messages ? "" : "other messages were forgotten, or in another order";
  }

  Matching matching_;
  Model model_;
  std::deque<NumberedReceive> receives_;
  std::deque<NumberedMessage> messages_;
};

// The first disagreement; empty: none.
std::string run(const Steps& steps, Matching::Options options, Rules rules) {
  Pair pair(options, rules);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::string wrong = pair.step(steps[i]);
    if (wrong.empty()) wrong = pair.same_content();
    if (!wrong.empty()) return "step " + std::to_string(i + 1) + ": " + wrong;
  }
  return {};
}

// Removes the steps that are not needed for the failure: large pieces first, then single steps,
// until none can be removed.
Steps shrink(Steps steps, Matching::Options options, Rules rules) {
  for (std::size_t piece = steps.size() / 2; piece >= 1;) {
    bool shorter = false;
    for (std::size_t at = 0; at + piece <= steps.size();) {
      Steps without(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(at));
      without.insert(without.end(), steps.begin() + static_cast<std::ptrdiff_t>(at + piece), steps.end());
      if (run(without, options, rules).empty()) {
        at += piece;
      } else {
        steps = std::move(without);
        shorter = true;
      }
    }
    if (!shorter || piece > 1) piece /= 2;
  }
  return steps;
}

struct Case {
  Matching::Options options;
  Steps steps;
};

// Few tags, ranks and workers, so that nearly everything meets. Each case has its own mixture: in
// some the stores grow long, in some messages wait, in some receives wait.
Case random_case(std::uint64_t seed, std::size_t length) {
  base::Random random(seed);
  Case made;
  made.options = {random.next(), random.below(2) == 0 ? 2U : 1U << 20};
  const std::uint64_t tags = 1 + random.below(random.below(4) == 0 ? 64 : 6);
  const std::uint64_t kinds_of_mask = 1 + random.below(random.below(3) == 0 ? 40 : 4);
  std::uint64_t weights[static_cast<std::size_t>(Kind::kCount)];
  for (auto& weight : weights) weight = 1 + random.below(8);
  weights[static_cast<std::size_t>(Kind::post)] += 4 + random.below(30);
  weights[static_cast<std::size_t>(Kind::arrive)] += 4 + random.below(30);
  weights[static_cast<std::size_t>(Kind::forget)] = random.below(2);
  std::uint64_t sum = 0;
  for (const auto weight : weights) sum += weight;
  for (std::size_t i = 0; i < length; ++i) {
    Step step;
    std::uint64_t point = random.below(sum);
    std::size_t kind = 0;
    while (point >= weights[kind]) point -= weights[kind++];
    step.kind = static_cast<Kind>(kind);
    step.tag = random.below(tags) << (random.below(2) * 40);
    const std::uint64_t mask = random.below(kinds_of_mask);
    step.mask = mask == 0 ? kWholeTag : mask == 1 ? 0 : mask == 2 ? 1 : mask * 0x10000000001ULL;
    step.peer = {static_cast<std::uint32_t>(random.below(3)), static_cast<std::uint32_t>(random.below(2))};
    step.which = random.below(1000);
    const bool asks = step.kind == Kind::post || step.kind == Kind::probe || step.kind == Kind::take;
    if (asks && random.below(3) == 0) step.peer.worker = kAnyNumber;
    if (asks && random.below(3) == 0) step.peer = {kAnyNumber, kAnyNumber};
    made.steps.push_back(step);
  }
  return made;
}

TEST(MatchingModel, AgreesWithTwoListsOnRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    const Case made = random_case(seed, 20 + seed % 280);
    if (run(made.steps, made.options, {}).empty()) continue;
    const Steps shortest = shrink(made.steps, made.options, {});
    FAIL() << "seed " << seed << ", " << made.options.max_buckets << " buckets, " << run(shortest, made.options, {})
           << "\n"
           << text_of(shortest);
  }
}

TEST(MatchingModel, AgreesWhereTheStoresAreLong) {
  for (std::uint64_t seed = 10'001; seed <= 10'010; ++seed) {
    const Case made = random_case(seed, 3000);
    EXPECT_EQ(run(made.steps, made.options, {}), "") << "seed " << seed;
  }
}

// Checks that the comparison and the shrinking work: each wrong rule is found, and is printed with
// the fewest possible steps.
TEST(MatchingModel, FindsAndShrinksWrongRules) {
  struct Wrong {
    Rules rules;
    std::size_t steps;  // post, post, arrive; post, forget
  };
  for (const Wrong& wrong : {Wrong{{true, false}, 3}, Wrong{{false, true}, 2}}) {
    std::uint64_t seed = 1;
    Case made = random_case(seed, 300);
    while (run(made.steps, made.options, wrong.rules).empty()) {
      ASSERT_LT(++seed, 50U) << "a wrong rule was not found";
      made = random_case(seed, 300);
    }
    const Steps shortest = shrink(made.steps, made.options, wrong.rules);
    EXPECT_EQ(shortest.size(), wrong.steps) << text_of(shortest);
    EXPECT_NE(run(shortest, made.options, wrong.rules), "");
  }
}

}  // namespace
}  // namespace heddle::protocol::matching_model_test
