#include "transport/test/conformance.hpp"

#include <sched.h>

#include <cctype>
#include <cstring>
#include <stdexcept>

#include "base/fence.hpp"
#include "base/test_support.hpp"

namespace heddle::transport::conformance {

std::string name_of(const Setting& setting) {
  std::string name;
  for (const char c : setting.label) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes) {
  base::Random random(seed + 17);
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return out;
}

int scaled(int rounds) {
  const int in_full = base::kThreadSanitizer ? 8 : 1;
  return std::max(1, rounds / base::few_if_sanitized(base::kThreadSanitizer ? 24 : 4, in_full));
}

Command message_to(std::uint32_t rank, std::uint32_t worker, const std::vector<std::byte>& payload,
                   std::uint32_t immediate) {
  Command command;
  command.rank = rank;
  command.worker = worker;
  command.immediate = immediate;
  command.local = const_cast<std::byte*>(payload.data());  // NOLINT: a source is not written
  command.bytes = payload.size();
  return command;
}

// ---- Port ---------------------------------------------------------------------------------------

std::size_t Port::post(std::span<Command> batch) {
  for (Command& command : batch) {
    command.token = next_token_++;
    command.done = false;
    command.source_free = false;
  }
  const std::size_t accepted = worker_->post(batch);
  EXPECT_LE(accepted, batch.size());
  for (const Command& command : batch.first(std::min(accepted, batch.size()))) enter(command);
  for (const Command& command : batch.subspan(std::min(accepted, batch.size()))) {
    EXPECT_FALSE(command.done || command.source_free) << "a command that was not accepted was changed";
  }
  return accepted;
}

Token Port::post_one(Command command) {
  return post(std::span(&command, 1)) == 1 ? command.token : 0;
}

bool Port::send(Command command) {
  if (!command.inlined) command.set_message(command.header, command.header_bytes, command.local, command.bytes);
  return post_one(command) != 0;
}

void Port::enter(const Command& command) {
  Entry entry;
  entry.wants_source_free = command.wants_source_free;
  entry.source_free = command.source_free;
  entry.done = command.done;
  if (!entry.done) ++outstanding_;
  commands_.emplace(command.token, entry);
}

std::size_t Port::poll(std::size_t most) {
  check_lent();
  std::vector<Completion> completions(most);
  const std::size_t count = worker_->poll(completions);
  EXPECT_LE(count, most);
  for (const Completion& completion : std::span(completions).first(std::min(count, most))) {
    if (completion.event != Event::message) {
      finished(completion);
      continue;
    }
    EXPECT_EQ(completion.status, HEDDLE_DONE);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(completion.data) % 8, 0U) << "message data is not aligned";
    arrivals.push_back({completion.rank, completion.worker, completion.immediate,
                        std::vector<std::byte>(completion.data, completion.data + completion.bytes)});
    lent_.push_back({completion.data, arrivals.size() - 1});
  }
  return count;
}

void Port::finished(const Completion& completion) {
  if (completion.event == Event::several) {  // its tokens differ: each is one
    EXPECT_GT(completion.bytes, 0U) << "a completion of nothing";
    Completion one = completion;
    one.event = Event::done;
    for (std::uint32_t i = 0; i < completion.bytes; ++i) finished(one);
    return;
  }
  if (completion.event == Event::done && completion.token == 0) return;  // a peer was served
  const auto found = commands_.find(completion.token);
  if (found == commands_.end()) {
    ADD_FAILURE() << "a completion for token " << completion.token << ", which was not accepted";
    return;
  }
  Entry& entry = found->second;
  EXPECT_FALSE(entry.done) << "a completion after done, token " << completion.token;
  if (completion.event == Event::source_free) {
    EXPECT_TRUE(entry.wants_source_free) << "a source_free that nobody asked for, token " << completion.token;
    EXPECT_FALSE(entry.source_free) << "source_free twice, token " << completion.token;
    entry.source_free = true;
    return;
  }
  if (entry.wants_source_free && completion.status == HEDDLE_DONE) {
    EXPECT_TRUE(entry.source_free) << "done without source_free, token " << completion.token;
  }
  entry.done = true;
  entry.status = completion.status;
  --outstanding_;
}

void Port::check_lent() {
  for (const Lent& lent : lent_) {
    if (lent.arrival >= arrivals.size()) continue;  // the test has taken it
    const std::vector<std::byte>& copy = arrivals[lent.arrival].data;
    EXPECT_TRUE(copy.empty() || std::memcmp(lent.data, copy.data(), copy.size()) == 0)
        << "message data changed before the next poll";
  }
  lent_.clear();
}

// ---- World --------------------------------------------------------------------------------------

World::World(const Setting& setting, std::uint32_t ranks, std::uint32_t workers) : job_(ranks) {
  base::Config::Overrides variables = setting.variables;
  variables.emplace("HEDDLE_MAX_WORKERS", std::to_string(kMaxWorkers));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    auto rank = std::make_unique<Rank>();
    const auto config = base::Config::read(variables);
    if (!config) throw std::runtime_error(base::last_message());
    rank->environment.config = *config;
    rank->environment.log = base::Log(base::Level::error, r);
    rank->environment.clock = &clock_;
    auto member = bootstrap::inproc::open(job_, r);
    if (!member) throw std::runtime_error(base::last_message());
    rank->bootstrap = std::move(*member);
    auto transport = open(setting.transport, *rank->bootstrap, rank->environment);
    if (!transport) throw std::runtime_error(base::last_message());
    rank->transport = std::move(*transport);
    ranks_.push_back(std::move(rank));
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t w = 0; w < workers; ++w) open_port(r);
  }
}

World::~World() = default;

Port& World::open_port(std::uint32_t rank) {
  auto& ports = ranks_[rank]->ports;
  const auto index = static_cast<std::uint32_t>(ports.size());
  auto worker = ranks_[rank]->transport->open_worker(index);
  if (!worker) throw std::runtime_error(base::last_message());
  ports.push_back(std::make_unique<Port>(std::move(*worker), rank, index));
  return *ports.back();
}

void World::fail(std::uint32_t rank) {
  declare_dead(rank);
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank || ranks_[r] == nullptr) continue;
    for (auto& port : ranks_[r]->ports) {
      if (port != nullptr) port->worker().peer_failed(rank);
    }
  }
}

void World::pump() {
  std::size_t came = 0;
  for (auto& rank : ranks_) {
    if (rank == nullptr) continue;
    for (auto& port : rank->ports) {
      if (port != nullptr) came += port->poll();
    }
  }
  if (came == 0) sched_yield();  // a transport may have threads of its own
}

bool World::until(const std::function<bool()>& condition) {
  const Deadline deadline;
  while (!condition()) {
    if (deadline.over()) return false;
    pump();
  }
  return true;
}

Token World::must_post(Port& port, const Command& command) {
  Token token = 0;
  EXPECT_TRUE(until([&] { return (token = port.post_one(command)) != 0; })) << "never accepted";
  return token;
}

bool World::must_send(Port& port, const Command& command) {
  return until([&] { return port.send(command); });
}

bool World::quiet() {
  return until([&] {
    for (const auto& rank : ranks_) {
      if (rank == nullptr) continue;
      for (const auto& port : rank->ports) {
        if (port != nullptr && port->outstanding() != 0) return false;
      }
    }
    return true;
  });
}

base::Status World::run(Port& port, const Command& command) {
  const Token token = must_post(port, command);
  if (token == 0) return HEDDLE_AGAIN;
  EXPECT_TRUE(until([&] { return port.done(token); })) << "never done";
  return port.status(token);
}

}  // namespace heddle::transport::conformance
