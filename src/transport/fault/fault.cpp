#include "transport/fault/fault.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "transport/fault/port.hpp"

namespace heddle::transport::fault {

namespace {

// One refusal in this many is the first of a storm.
constexpr std::uint64_t kStormOneIn = 8;

// The chance that a post begins a series of refusals, of 2^16, such that in the long run `percent`
// of all posts are refused although some series are storms.
std::uint64_t threshold(std::uint64_t percent, std::uint64_t longest_storm) {
  const std::uint64_t mean_times_100 = (100 * (kStormOneIn - 1) + 50 * (longest_storm + 1)) / kStormOneIn;
  const std::uint64_t accepted = (100 - percent) * mean_times_100;
  return percent == 0 ? 0 : 65536 * percent * 100 / (percent * 100 + accepted);
}

std::uint64_t target_of(const Command& command) {
  return std::uint64_t{command.rank} << 32 | command.worker;
}

}  // namespace

Port::Port(std::unique_ptr<TransportWorker> inner, const Settings& settings, std::uint64_t seed, base::Clock& clock)
    : ForwardingWorker(std::move(inner)),
      settings_(settings),
      random_(seed),
      clock_(clock),
      refusal_threshold_(threshold(settings.again_percent, kLongestStorm)),
      // Reordering needs something to overtake.
      longest_hold_(std::max<std::uint64_t>(settings.delay, settings.reorder ? 2 : 0)) {
  commands_.reserve(kMostCommands);
  events_.reserve(kMostEvents + kPortion + 2 * kMostCommands);
  lent_.reserve(events_.capacity());
  order_.reserve(events_.capacity());
  waiting_.reserve(kMostCommands);
}

// How many commands of the batch may be accepted.
std::size_t Port::allowance(std::size_t batch) {
  if (refusal_threshold_ == 0) return batch;
  if (storm_ > 0) {
    --storm_;
    return 0;
  }
  if (random_.below(65536) >= refusal_threshold_) return batch;
  if (random_.below(kStormOneIn) == 0) {
    storm_ = random_.below(kLongestStorm);
    return 0;
  }
  return random_.below(2) == 0 ? 0 : random_.below(batch);
}

std::uint64_t Port::due() {
  return polls_ + random_.below(longest_hold_ + 1);
}

void Port::shuffle(std::vector<std::size_t>* order) {
  for (std::size_t i = order->size(); i > 1; --i) std::swap((*order)[i - 1], (*order)[random_.below(i)]);
}

std::size_t Port::post(std::span<Command> batch) {
  if (batch.empty()) return 0;
  batch = batch.first(allowance(batch.size()));
  if (!settings_.holds()) return batch.empty() ? 0 : inner_->post(batch);
  if (batch.empty()) return 0;
  // done within post(), or not accepted
  if (batch.front().alone) return inner_->post(batch.first(1));
  // Every command may add two events before the next poll.
  if (events_.size() >= kMostEvents) return 0;
  batch = batch.first(std::min(batch.size(), kMostCommands - commands_.size()));
  if (batch.empty()) return 0;
  const auto lonely = std::ranges::find(batch, true, &Command::alone);
  batch = batch.first(static_cast<std::size_t>(lonely - batch.begin()));
  const bool may_overtake = settings_.latency_ns == 0 && (settings_.reorder || commands_.empty());
  return may_overtake && random_.below(2) == 0 ? pass(batch) : keep(batch);
}

// Posts to the inner worker at once. If a command is finished already, that may be reported later.
std::size_t Port::pass(std::span<Command> batch) {
  const std::size_t accepted = inner_->post(batch);
  for (Command& command : batch.first(accepted)) {
    if (!command.done || random_.below(2) == 0) continue;
    if (command.wants_source_free && random_.below(2) == 0) {
      command.source_free = false;
    } else {
      command.source_free = true;
    }
    command.done = false;
    Command report = command;
    report.wants_source_free = command.wants_source_free && !command.source_free;
    report.done = true;
    events_for(report);
  }
  return accepted;
}

std::size_t Port::keep(std::span<Command> batch) {
  const std::uint64_t arrives = arrival();
  for (Command& command : batch) {
    command.done = false;
    command.source_free = false;
    HeldCommand held;
    held.command = command;
    if (command.header_bytes > 0 && command.header_bytes <= kMaxHeaderBytes) {
      std::memcpy(held.header.data(), command.header, command.header_bytes);
    }
    held.due = due();
    held.arrives = arrives;
    commands_.push_back(held);
  }
  return batch.size();
}

// Gives the commands that are due to the inner worker.
void Port::submit() {
  if (events_.size() >= kMostEvents || commands_.empty()) return;
  const std::uint64_t time = now();
  order_.clear();
  for (std::size_t i = 0; i < commands_.size(); ++i) order_.push_back(i);
  if (settings_.reorder) shuffle(&order_);
  waiting_.clear();
  constexpr std::uint64_t kSubmitted = ~std::uint64_t{0};
  for (const std::size_t i : order_) {
    HeldCommand& held = commands_[i];
    const std::uint64_t target = target_of(held.command);
    const bool behind = std::find(waiting_.begin(), waiting_.end(), target) != waiting_.end();
    if (behind && !settings_.reorder) continue;
    if (held.due <= polls_ && held.arrives <= time && submit_one(held)) {
      held.due = kSubmitted;
    } else {
      waiting_.push_back(target);
    }
  }
  std::erase_if(commands_, [](const HeldCommand& held) { return held.due == kSubmitted; });
}

bool Port::submit_one(HeldCommand& held) {
  if (held.command.header_bytes <= kMaxHeaderBytes) held.command.header = held.header.data();
  if (inner_->post({&held.command, 1}) == 0) return false;
  events_for(held.command);
  return true;
}

// The inner worker has accepted the command. The caller does not see the flags that the inner
// worker has set, so events report them.
void Port::events_for(const Command& command) {
  Completion completion;
  completion.token = command.token;
  if (command.wants_source_free && (command.done || command.source_free)) {
    completion.event = Event::source_free;
    hold(completion);
  }
  if (command.done) {
    completion.event = Event::done;
    hold(completion);
  }
}

void Port::hold(const Completion& completion) {
  if (completion.event == Event::several) {  // each may be late, or overtaken
    Completion one = completion;
    one.event = Event::done;
    for (std::uint32_t i = 0; i < completion.bytes; ++i) hold(one);
    return;
  }
  HeldEvent event;
  event.completion = completion;
  event.due = due();
  if (completion.event == Event::done) event.arrives = arrival();
  if (completion.event == Event::message) {
    event.data.reset(new std::uint64_t[completion.bytes / 8 + 1]);
    if (completion.bytes != 0) std::memcpy(event.data.get(), completion.data, completion.bytes);
    event.completion.data = reinterpret_cast<const std::byte*>(event.data.get());
  } else if (completion.event == Event::source_free) {
    ++held_source_free_;
  }
  events_.push_back(std::move(event));
}

void Port::collect() {
  if (events_.size() >= kMostEvents) return;
  std::array<Completion, kPortion> arrived;
  const std::size_t count = inner_->poll(arrived);
  for (const Completion& completion : std::span(arrived).first(count)) hold(completion);
}

bool Port::awaits_source_free(const HeldEvent& event) const {
  if (event.completion.event != Event::done || held_source_free_ == 0) return false;
  return std::any_of(events_.begin(), events_.end(), [&](const HeldEvent& other) {
    return !other.gone && other.completion.event == Event::source_free &&
           other.completion.token == event.completion.token;
  });
}

std::size_t Port::deliver(std::span<Completion> completions) {
  if (events_.empty()) return 0;
  const std::uint64_t time = now();
  order_.clear();
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (events_[i].due > polls_) {
      if (!settings_.reorder) break;
    } else if (events_[i].arrives <= time) {
      order_.push_back(i);
    }
  }
  if (settings_.reorder) shuffle(&order_);
  std::size_t count = 0;
  for (const std::size_t i : order_) {
    if (count == completions.size()) break;
    HeldEvent& event = events_[i];
    if (awaits_source_free(event)) continue;
    completions[count++] = event.completion;
    if (event.completion.event == Event::source_free) --held_source_free_;
    event.gone = true;
    lent_.push_back(std::move(event));
    events_[i].gone = true;
  }
  std::erase_if(events_, [](const HeldEvent& event) { return event.gone; });
  return count;
}

std::size_t Port::poll(std::span<Completion> completions) {
  if (!settings_.holds()) return inner_->poll(completions);
  ++polls_;
  lent_.clear();
  submit();
  collect();
  return deliver(completions);
}

namespace {

class FaultTransport final : public ForwardingTransport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, std::uint32_t rank, const Settings& settings, base::Clock& clock)
      : ForwardingTransport(std::move(inner)),
        rank_(rank),
        clock_(clock),
        settings_(settings),
        name_(std::string("fault+") + inner_->capabilities().name),
        capabilities_(inner_->capabilities()) {
    capabilities_.name = name_.c_str();
    capabilities_.direct = capabilities_.direct && !settings.any();
    capabilities_.copies_messages = false;  // commands that it holds back are not posted yet
    capabilities_.ordered_messages = capabilities_.ordered_messages && !settings.reorder;
  }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] std::string describe() const override { return "fault+" + inner_->describe(); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override {
    return capabilities_.direct && inner_->direct_to(rank);
  }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto inner = inner_->open_worker(index);
    if (!inner) return inner.status();
    // Far apart, so that ranks and workers do not share their random choices.
    const std::uint64_t seed = (settings_.seed * 65537 + rank_) * 65537 + index;
    return std::unique_ptr<TransportWorker>(std::make_unique<Port>(std::move(*inner), settings_, seed, clock_));
  }

  // Direct memory of the inner transport becomes memory without commands: the protocol layer
  // reaches it by messages, to which the faults apply. With `again` every other import
  // gets AGAIN, as if the card were under way.
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (settings_.again_percent > 0 && imports_.fetch_add(1, std::memory_order_relaxed) % 2 == 0) return HEDDLE_AGAIN;
    auto memory = inner_->try_import(rank, key);
    if (memory && settings_.any()) memory->direct = nullptr;
    return memory;
  }
  // These would bypass the decorator, as direct memory does.
  [[nodiscard]] SessionQueues* sessions() override { return settings_.any() ? nullptr : inner_->sessions(); }
  [[nodiscard]] BarrierGates* gates() override { return settings_.any() ? nullptr : inner_->gates(); }

 private:
  const std::uint32_t rank_;
  base::Clock& clock_;
  const Settings settings_;
  const std::string name_;
  Capabilities capabilities_;
  std::atomic<std::uint32_t> imports_{0};
};

}  // namespace

base::Result<std::unique_ptr<Transport>> decorate(std::unique_ptr<Transport> inner, std::uint32_t rank,
                                                  const base::Environment& environment) {
  const base::Config& config = environment.config;
  const Settings settings{config.number(base::Var::fault_seed), config.number(base::Var::fault_again),
                          config.number(base::Var::fault_delay), config.flag(base::Var::fault_reorder),
                          config.number(base::Var::fault_latency)};
  return std::unique_ptr<Transport>(
      std::make_unique<FaultTransport>(std::move(inner), rank, settings, *environment.clock));
}

}  // namespace heddle::transport::fault
