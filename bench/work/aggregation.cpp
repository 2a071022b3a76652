// Small messages as fast as they are taken, with aggregation and without: what is gained where the
// transport is busy (a fabric that takes a limited number of messages at a time, see
// driver/participants.cpp), and what it costs where it is not.
#include <array>
#include <atomic>
#include <string>

#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kNumber = 40;  // of the handler
constexpr std::uint64_t kData = 1;
constexpr std::uint64_t kFinished = 2;
constexpr std::size_t kWindow = 64;  // receives posted at once

void on_message(const heddle_am_arrival*, void* arg) {
  auto& arrived = *static_cast<std::atomic<std::uint64_t>*>(arg);
  arrived.store(arrived.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// A worker of each rank that aggregates or does not; nothing else is different.
class End {
 public:
  End(Job& job, heddle_choice aggregation) : job_(job), room_(std::size_t{1} << 16) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = HEDDLE_SHARING_EXCLUSIVE;
    options.aggregation = aggregation;
    must(heddle_worker_open(job.context(), &options, &worker_), "heddle_worker_open");
    std::uint32_t index = 0;
    must(heddle_worker_index(worker_, &index), "heddle_worker_index");
    peer_ = {job.peer(), index};
    must(heddle_am_register(job.context(), kNumber, on_message, &arrived_), "heddle_am_register");
    meet();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    must(heddle_quiet(worker_), "heddle_quiet");
    meet();
    must(heddle_worker_close(worker_), "heddle_worker_close");
    must(heddle_am_register(job_.context(), kNumber, nullptr, nullptr), "heddle_am_register");
  }

  // Rank 0 sends n messages, rank 1 takes them and says so.
  void run_am(bool sends, std::uint64_t n, std::uint64_t size) {
    if (sends) {
      heddle_am_message message{};
      message.handler = kNumber;
      message.payload = job_.local();
      message.payload_bytes = size;
      for (std::uint64_t i = 0; i < n; ++i) must(heddle_am(worker_, peer_, &message, nullptr), "heddle_am");
    } else {
      due_ += n;
      while (arrived_.load(std::memory_order_relaxed) < due_) advance();
    }
    conclude(sends);
  }
  void run_tagged(bool sends, std::uint64_t n, std::uint64_t size) {
    if (sends) {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(heddle_send(worker_, peer_, kData, job_.local(), size, nullptr), "heddle_send");
      }
    } else {
      std::array<heddle_receive, kWindow> receives;
      for (std::uint64_t left = n; left > 0;) {
        const std::size_t count = std::min<std::uint64_t>(left, kWindow);
        for (std::size_t i = 0; i < count; ++i) post(kData, room_.data(), size, &receives[i]);
        for (std::size_t i = 0; i < count; ++i) finish(receives[i]);
        left -= count;
      }
    }
    conclude(sends);
  }
  void advance() {
    if (progress(worker_) > 0) {
      idle_ = 0;
    } else if (++idle_ > 2000) {
      sched_yield();
      idle_ = 1000;
    }
  }

 private:
  void meet() { must(heddle_context_barrier(job_.context(), worker_, HEDDLE_FOREVER), "heddle_context_barrier"); }
  void conclude(bool sends) {
    std::uint64_t word = 0;
    if (sends) {
      heddle_receive receive;
      post(kFinished, &word, sizeof word, &receive);
      finish(receive);
    } else {
      must(heddle_send(worker_, peer_, kFinished, &word, sizeof word, nullptr), "heddle_send");
    }
    must(heddle_quiet(worker_), "heddle_quiet");
  }
  void post(std::uint64_t tag, void* data, std::uint64_t size, heddle_receive* receive) {
    const heddle_wanted wanted{peer_, tag, UINT64_MAX};
    must(heddle_recv(worker_, &wanted, data, size, receive, nullptr), "heddle_recv");
  }
  void finish(const heddle_receive& receive) {
    while (receive.status == HEDDLE_POSTED) advance();
    must(receive.status, "the receive");
  }

  Job& job_;
  heddle_worker worker_{};
  heddle_peer peer_{};
  std::vector<std::byte> room_;
  std::atomic<std::uint64_t> arrived_{0};
  std::uint64_t due_ = 0;
  std::uint32_t idle_ = 0;
};

}  // namespace

void run_aggregation(Session& session, Job& job) {
  if (!session.wants("aggregation")) return;
  session.cores().pin_sharing(session.rank(), 0);
  for (const auto& [suffix, choice] : {std::pair{"_off", HEDDLE_CHOICE_OFF}, std::pair{"_on", HEDDLE_CHOICE_ON}}) {
    End end(job, choice);
    const auto measure = [&](const char* kind, std::uint64_t size, auto&& run) {
      session.measure(job.figure("aggregation", std::string(kind) + suffix, "rate", size, 1), [&](std::uint64_t n) {
        const std::uint64_t begin = harness::now_ns();
        run(session.rank() == 0, n, size);
        const auto elapsed = static_cast<double>(harness::now_ns() - begin);
        session.channel().barrier_while([&] { end.advance(); });
        return Run{elapsed};
      });
    };
    for (const std::uint64_t size : harness::sizes_or(session.options(), {8, 64, 512})) {
      if (size > 4096) continue;  // no small message
      if (session.wants("aggregation", (std::string("am") + suffix).c_str())) {
        measure("am", size, [&](bool sends, std::uint64_t n, std::uint64_t bytes) { end.run_am(sends, n, bytes); });
      }
      if (session.wants("aggregation", (std::string("tagged") + suffix).c_str())) {
        measure("tagged", size,
                [&](bool sends, std::uint64_t n, std::uint64_t bytes) { end.run_tagged(sends, n, bytes); });
      }
    }
  }
}

}  // namespace heddle::bench::work
