// The application of PIOMan's paper: each thread computes its frontier, sends it to its neighbours,
// computes the rest and waits for what its neighbours send; 4 and 16 threads over two processes.
// Frontiers are active messages, inside a process too. The driver runs it under several progress
// policies; the matrix is compared with a serial run before anything is measured.
#include "harness/convolution.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Block;
using harness::index_of;
using harness::Neighbour;
using harness::Run;
using harness::Session;
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
  // `shared`: null for a worker each.
  Convolution(Session& session, Job& job, const ModeWorker* shared, std::uint32_t threads, std::uint32_t side)
      : session_(session),
        job_(job),
        shared_(shared),
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
      blocks_.push_back(std::make_unique<Block>(grid_, harness::place_of(grid_, job.rank(), i), side));
    }
    must(heddle_am_register(job.context(), kFrontier, on_frontier, &inboxes_), "heddle_am_register");
    session.channel().barrier();
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;
  ~Convolution() {
    session_.channel().barrier();
    must(heddle_am_register(job_.context(), kFrontier, nullptr, nullptr), "heddle_am_register");
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
      same = serial.has(*blocks_[i], harness::place_of(grid_, job_.rank(), i)) && same;
    }
    std::atomic<std::uint64_t>& flag = session_.channel().flag(session_.rank());
    flag.store(same ? 1 : 0, std::memory_order_relaxed);
    session_.channel().barrier();
    const bool both = session_.channel().flag(0).load() == 1 && session_.channel().flag(1).load() == 1;
    session_.channel().barrier();
    return both;
  }

 private:
  [[nodiscard]] heddle_worker worker(std::uint32_t thread) const {
    return shared_ != nullptr ? shared_->handle() : job_.worker(thread);
  }
  [[nodiscard]] heddle_peer target(const Neighbour& to) const {
    return {to.rank, shared_ != nullptr ? shared_->peer().worker : to.thread};
  }
  static void on_sent(void* mail, heddle_status status) {
    must(status, "a frontier");
    static_cast<Mail*>(mail)->sent.fetch_add(1, std::memory_order_release);
  }
  template <class Condition>
  void wait(std::uint32_t thread, Condition&& condition) const {
    while (!condition()) wait_moved(worker(thread));
  }

  void send(std::uint32_t thread, std::uint64_t step, Side side, const Neighbour& to) {
    Mail& mail = *inboxes_.mail[thread];
    auto& values = mail.out[step % 2][index_of(side)];
    blocks_[thread]->give(side, values.data());
    const Header header{step, to.thread, harness::opposite(side)};
    const heddle_am_message message{kFrontier, sizeof header, &header, values.data(), values.size() * sizeof values[0]};
    const heddle_completion sent{on_sent, &mail, {}, HEDDLE_WHEN_LOCAL};
    if (must(heddle_am(worker(thread), target(to), &message, &sent), "heddle_am") == HEDDLE_POSTED) ++mail.posted;
  }

  void one_step(std::uint32_t thread, std::uint64_t step) {
    Block& block = *blocks_[thread];
    Mail& mail = *inboxes_.mail[thread];
    block.compute_frontier();
    for (const Side side : harness::kSides) {
      const Neighbour to = harness::neighbour_of(grid_, job_.rank(), thread, side);
      if (to.there) send(thread, step, side, to);
    }
    block.compute_rest();
    wait(thread, [&] { return mail.sent.load(std::memory_order_acquire) == mail.posted; });
    for (const Side side : harness::kSides) {
      if (!harness::neighbour_of(grid_, job_.rank(), thread, side).there) continue;
      const Mail::Slot& slot = mail.in[step % 2][index_of(side)];
      wait(thread, [&] { return slot.step.load(std::memory_order_acquire) == step; });
      block.take(side, slot.values.data());
    }
    block.advance();
  }

  Session& session_;
  Job& job_;
  const ModeWorker* shared_;
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

void measure(Session& session, Job& job, const ModeWorker* shared, const char* mode) {
  const bool quick = session.options().quick;
  for (const std::uint64_t size : harness::sizes_or(session.options(), {quick ? 256U : 4096U})) {
    if (size < 16 || size > kMostBytes) continue;
    for (const std::uint32_t threads : harness::threads_or(session.options(), harness::kConvolutionThreads)) {
      Convolution convolution(session, job, shared, threads, static_cast<std::uint32_t>(size / sizeof(std::uint32_t)));
      harness::Figure figure = job.figure("convolution", policy(), "latency", size, 1);
      figure.key.sharing = mode;
      figure.key.threads = threads;
      figure.key.workers = shared != nullptr ? 1 : threads;
      const bool right = convolution.right();
      session.measure(figure, [&](std::uint64_t n) {
        Run run = convolution.steps(n);
        run.verified = right;
        return run;
      });
    }
  }
}

}  // namespace

void run_convolution(Session& session, Job& job) {
  if (!session.wants("convolution")) return;
  const auto& options = session.options();
  if (options.sharing.empty() || harness::wants_sharing(options, "exclusive"))
    measure(session, job, nullptr, "exclusive");
  for (const auto& [name, sharing] : kModes) {
    // Beside a worker for each thread the mode in which posting only registers the request, as
    // PIOMan's does.
    const bool wanted =
        options.sharing.empty() ? sharing == HEDDLE_SHARING_OFFLOAD : harness::wants_sharing(options, name);
    if (!wanted) continue;
    session.cores().unpin();
    const ModeWorker shared(job, sharing);
    measure(session, job, &shared, name);
  }
}

}  // namespace heddle::bench::work
