// For tests of protocols: a Core over a transport that is played by the test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <new>
#include <vector>

#include "bootstrap/inproc/inproc.hpp"
#include "engine/completer.hpp"
#include "engine/core.hpp"

namespace heddle::engine::test {

// Records what is posted, and reports what the test tells it to.
class PlayedTransport final : public transport::TransportWorker {
 public:
  struct Posted {
    std::uint32_t rank;
    std::uint32_t immediate;
    transport::Opcode opcode;
    transport::Token token;
    std::vector<std::byte> packet;  // message
    transport::Command command;     // as it came; what it points to may be gone
  };

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override {
    std::size_t taken = 0;
    ++posts;
    for (transport::Command& command : batch) {
      if (posted.size() >= memory) throw std::bad_alloc();
      if (posted.size() >= room) break;
      Posted one{command.rank, command.immediate, command.opcode, command.token, {}, command};
      if (command.opcode == transport::Opcode::message) {
        one.packet.resize(command.packet_bytes() + 8);
        transport::write_packet(command, one.packet.data());
        one.packet.resize(command.packet_bytes());
      }
      posted.push_back(std::move(one));
      command.done = done_at_once;
      command.source_free = done_at_once || free_at_once;
      ++taken;
    }
    return taken;
  }
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override {
    lent_.clear();
    std::size_t count = 0;
    while (count < completions.size() && !events_.empty()) {
      completions[count] = events_.front().completion;
      lent_.push_back(std::move(events_.front().words));
      completions[count++].data = reinterpret_cast<const std::byte*>(lent_.back().data());
      events_.pop_front();
    }
    return count;
  }
  void peer_failed(std::uint32_t rank) override { failed.push_back(rank); }

  // For the next poll.
  void arrive(std::uint32_t rank, std::uint32_t immediate, const void* data, std::size_t bytes) {
    Event event;
    event.words.resize(bytes / 8 + 1);
    if (bytes != 0) std::memcpy(event.words.data(), data, bytes);
    event.completion.event = transport::Event::message;
    event.completion.rank = rank;
    event.completion.immediate = immediate;
    event.completion.bytes = static_cast<std::uint32_t>(bytes);
    events_.push_back(std::move(event));
  }
  void complete(transport::Token token, base::Status status = HEDDLE_DONE) {
    tell(transport::Event::done, token, status);
  }
  void free_source(transport::Token token) { tell(transport::Event::source_free, token, HEDDLE_DONE); }

  std::size_t room = 1000;    // commands
  std::size_t memory = 1000;  // commands until it throws bad_alloc
  bool done_at_once = true;
  bool free_at_once = false;
  std::size_t posts = 0;  // calls of post()
  std::vector<Posted> posted;
  std::vector<std::uint32_t> failed;

 private:
  struct Event {
    transport::Completion completion;
    std::vector<std::uint64_t> words;
  };
  void tell(transport::Event what, transport::Token token, base::Status status) {
    Event event;
    event.completion.event = what;
    event.completion.token = token;
    event.completion.status = status;
    events_.push_back(std::move(event));
  }
  std::deque<Event> events_;
  std::deque<std::vector<std::uint64_t>> lent_;  // by the last poll
};

// Rank 0 of an inproc job, with a transport for what memory it has.
class PlayedJob final : public Job {
 public:
  PlayedJob(bootstrap::inproc::ThreadJob& job, const char* transport_name) : Job(environment_of_process()) {
    EXPECT_EQ(join_job({"inproc", &job, 0}, base::Level::warn), HEDDLE_DONE) << base::last_message();
    auto opened = transport::open(transport_name, bootstrap(), environment());
    EXPECT_TRUE(opened.ok()) << base::last_message();
    set_transport(std::move(*opened));
  }

 private:
  static base::Environment environment_of_process() {
    base::Environment environment;
    environment.config = std::move(*base::Config::read());
    return environment;
  }
};

// Rank 0 of a job of `ranks`, of which the others are played.
class PlayedCore : public testing::Test {
 protected:
  explicit PlayedCore(std::uint32_t ranks = 2, const char* transport_name = "loopback")
      : inproc(ranks), job(inproc, transport_name) {}
  // Called before the protocols that a test has added to the table are destroyed.
  void TearDown() override {
    completer.cancel_all(HEDDLE_ERR_CANCELLED);
    objects.clear();
  }

  int progress() { return completer.progress(); }

  bootstrap::inproc::ThreadJob inproc;
  PlayedJob job;
  Objects objects{job};
  PlayedTransport played;
  Core core{objects, 1, played, true};
  Completer completer{core};
};

}  // namespace heddle::engine::test
