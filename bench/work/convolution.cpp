// The application of PIOMan's paper: each thread computes its frontier, sends it to its neighbours,
// computes the rest and waits for what its neighbours send; 4 and 16 threads over two processes.
// Frontiers are active messages, inside a process too. The driver runs it under several progress
// policies; the matrix is compared with a serial run before anything is measured.
#include "harness/convolution.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Block;
using harness::index_of;
using harness::Neighbour;
using harness::Run;
using harness::Side;

constexpr std::uint32_t kFrontier = 930;
constexpr std::uint64_t kSteps = 3;                           // of the comparison
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 14;  // the matrix has the square of it

struct Header {
  std::uint64_t step;
  std::uint32_t thread;  // to which
  Side side;             // of it
};

// What one thread sends and is sent, for two steps: a neighbour is at most one step ahead.
struct Mail {
  struct Slot {
    std::vector<std::uint32_t> values;
    std::atomic<std::uint64_t> step{0};  // release, after the values; partner: the thread's acquire
  };
  std::array<std::array<Slot, 4>, 2> in;
  std::array<std::array<std::vector<std::uint32_t>, 4>, 2> out;
  // messages that need their source no more; partner: the thread's acquire
  std::atomic<std::uint64_t> sent{0};
  std::uint64_t posted = 0;
};

struct Inboxes {
  std::vector<std::unique_ptr<Mail>> mail;  // by thread
};

void on_frontier(const heddle_am_arrival* message, void* arg) {
  const auto* header = static_cast<const Header*>(message->header);
  Mail::Slot& slot = static_cast<Inboxes*>(arg)->mail[header->thread]->in[header->step % 2][index_of(header->side)];
  std::memcpy(slot.values.data(), message->payload, message->payload_bytes);
  slot.step.store(header->step, std::memory_order_release);
}

class Convolution {
 public:
  Convolution(Bench& bench, Heddle& library, std::uint32_t threads, std::uint32_t side)
      : session_(bench.session()),
        library_(library),
        threads_(threads),
        side_(side),
        grid_(harness::ThreadGrid::of(threads)) {
    for (std::uint32_t i = 0; i < threads; ++i) {
      auto mail = std::make_unique<Mail>();
      for (const std::size_t parity : {0, 1}) {
        for (const Side one : harness::kSides) {
          mail->in[parity][index_of(one)].values.resize(side);
          mail->out[parity][index_of(one)].resize(side);
        }
      }
      inboxes_.mail.push_back(std::move(mail));
      blocks_.push_back(std::make_unique<Block>(grid_, harness::place_of(grid_, bench.rank(), i), side));
    }
    must(heddle_am_register(job_context, kFrontier, on_frontier, &inboxes_), "heddle_am_register");
    session_.channel().barrier();
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;
  ~Convolution() {
    session_.channel().barrier();
    must(heddle_am_register(job_context, kFrontier, nullptr, nullptr), "heddle_am_register");
  }

  Run steps(std::uint64_t n) {
    const std::uint64_t first = done_ + 1;
    done_ += n;
    const auto pin = [&](std::uint32_t thread) { session_.cores().pin_sharing(session_.rank(), thread); };
    return Run{harness::run_threads(threads_, pin, [&](std::uint32_t thread) {
      for (std::uint64_t step = first; step <= done_; ++step) one_step(thread, step);
    })};
  }

  // Both processes' parts are what a serial run gives. Collective; right after the construction.
  bool right() {
    steps(kSteps);
    harness::SerialConvolution serial(grid_.rows * side_, grid_.columns * side_);
    for (std::uint64_t i = 0; i < kSteps; ++i) serial.step();
    bool same = true;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      same = serial.has(*blocks_[i], harness::place_of(grid_, session_.rank(), i)) && same;
    }
    std::atomic<std::uint64_t>& flag = session_.channel().flag(session_.rank());
    flag.store(same ? 1 : 0, std::memory_order_relaxed);
    session_.channel().barrier();
    const bool both = session_.channel().flag(0).load() == 1 && session_.channel().flag(1).load() == 1;
    session_.channel().barrier();
    return both;
  }

 private:
  static void on_sent(void* mail, heddle_status status) {
    must(status, "a frontier");
    static_cast<Mail*>(mail)->sent.fetch_add(1, std::memory_order_release);
  }
  template <class Condition>
  void wait(std::uint32_t thread, Condition&& condition) const {
    while (!condition()) must(heddle_worker_wait(library_.worker(thread), HEDDLE_FOREVER), "heddle_worker_wait");
  }

  void send(std::uint32_t thread, std::uint64_t step, Side side, const Neighbour& to) {
    Mail& mail = *inboxes_.mail[thread];
    auto& values = mail.out[step % 2][index_of(side)];
    blocks_[thread]->give(side, values.data());
    const Header header{step, to.thread, harness::opposite(side)};
    const heddle_am_message message{kFrontier, sizeof header, &header, values.data(), values.size() * sizeof values[0]};
    const heddle_completion sent{on_sent, &mail, {}, HEDDLE_WHEN_LOCAL};
    if (must(heddle_am(library_.worker(thread), library_.at_lane(to.rank, to.thread), &message, &sent), "heddle_am") ==
        HEDDLE_POSTED)
      ++mail.posted;
  }

  void one_step(std::uint32_t thread, std::uint64_t step) {
    Block& block = *blocks_[thread];
    Mail& mail = *inboxes_.mail[thread];
    block.compute_frontier();
    for (const Side side : harness::kSides) {
      const Neighbour to = harness::neighbour_of(grid_, session_.rank(), thread, side);
      if (to.there) send(thread, step, side, to);
    }
    block.compute_rest();
    wait(thread, [&] { return mail.sent.load(std::memory_order_acquire) == mail.posted; });
    for (const Side side : harness::kSides) {
      if (!harness::neighbour_of(grid_, session_.rank(), thread, side).there) continue;
      const Mail::Slot& slot = mail.in[step % 2][index_of(side)];
      wait(thread, [&] { return slot.step.load(std::memory_order_acquire) == step; });
      block.take(side, slot.values.data());
    }
    block.advance();
  }

  harness::Session& session_;
  Heddle& library_;
  const std::uint32_t threads_;
  const std::uint32_t side_;
  const harness::ThreadGrid grid_;
  Inboxes inboxes_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::uint64_t done_ = 0;
};

std::string policy() {
  const char* set = std::getenv("HEDDLE_PROGRESS");
  return set != nullptr && *set != '\0' ? set : "default";
}

}  // namespace

void run_convolution(Bench& bench, Heddle& library) {
  if (!bench.wants("convolution")) return;
  const bool quick = bench.options().quick;
  for (const std::uint64_t size : bench.sizes({quick ? 256U : 4096U}, kMostBytes)) {
    if (size < 16) continue;
    for (const std::uint32_t threads : harness::threads_or(bench.options(), harness::kConvolutionThreads)) {
      Convolution convolution(bench, library, threads, static_cast<std::uint32_t>(size / sizeof(std::uint32_t)));
      const bool right = convolution.right();
      bench.session().measure(bench.figure({"convolution", policy(), "latency", size, 1, threads}),
                              [&](std::uint64_t n) {
                                Run run = convolution.steps(n);
                                run.verified = right;
                                return run;
                              });
    }
  }
}

}  // namespace heddle::bench::work
