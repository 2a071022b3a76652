// The bench `overhead` where there is no adapter: the threads of one process put into its own
// memory over the transport verbs, on a libibverbs that executes requests within the process and
// counts calls of ibv_post_send (src/transport/test/verbs_idle.hpp). HEDDLE_LIBRARIES names
// it. So the cost of posting, and the number of operations that share such a call, depend on Heddle
// alone.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/config.hpp"
#include "measure/overlap.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using measure::Owner;

// Operations by each thread in a repeat. There must be many: calls that few threads share before
// all are at work say nothing.
constexpr std::uint64_t kPuts = 5000;
constexpr std::uint64_t kQuickPuts = 50;

// The first word of the data that the library exports. Null: there is no such library.
const std::atomic<std::uint64_t>* find_counter() {
  const auto config = base::Config::read();
  if (!config || !config->is_set(base::Var::library_verbs)) return nullptr;
  void* library = ::dlopen(config->text(base::Var::library_verbs).c_str(), RTLD_NOW | RTLD_NODELETE);
  return library != nullptr ? static_cast<const std::atomic<std::uint64_t>*>(::dlsym(library, "idle_verbs")) : nullptr;
}

// A context of its own, whose threads put into its own memory, each to a line for itself.
class Putters {
 public:
  Putters(heddle_sharing sharing, std::uint32_t threads) : values_(threads) {
    heddle_context_options options{};
    options.size = sizeof options;
    options.bootstrap = "single";
    options.transport = "verbs";
    must(heddle_context_join(&options, &context_), "heddle_context_join");
    must(heddle_region_alloc(context_, threads * harness::kApart, &region_), "heddle_region_alloc");
    must(heddle_region_exchange(context_, region_, &remote_), "heddle_region_exchange");
    heddle_worker_options how{};
    how.size = sizeof how;
    how.sharing = sharing;
    must(heddle_worker_open(context_, &how, &worker_), "heddle_worker_open");
    must(heddle_region_address(region_, &memory_, nullptr), "heddle_region_address");
    for (std::uint32_t thread = 0; thread < threads; ++thread) values_[thread].value = thread + 1;
    put(0);  // connects
    flush();
  }
  Putters(const Putters&) = delete;
  Putters& operator=(const Putters&) = delete;
  ~Putters() { must(heddle_context_leave(context_), "heddle_context_leave"); }

  void put(std::uint32_t thread) {
    must(heddle_put(worker_, &values_[thread].value, 8, {remote_, thread * harness::kApart}, nullptr), "heddle_put");
  }
  void flush() { must(heddle_flush(worker_, 0), "heddle_flush"); }
  [[nodiscard]] bool right(std::uint32_t thread) const {
    return std::memcmp(static_cast<std::byte*>(memory_) + thread * harness::kApart, &values_[thread], 8) == 0;
  }

 private:
  struct alignas(harness::kApart) Value {
    std::uint64_t value = 0;
  };
  std::vector<Value> values_;
  heddle_context context_{};
  heddle_region region_{};
  void* memory_ = nullptr;
  heddle_remote_region remote_{};
  heddle_worker worker_{};
};

// `under_way`: puts without waiting for each.
void measure_doorbells(Bench& bench, Putters& putters, const std::atomic<std::uint64_t>& doorbells,
                       std::uint32_t threads, bool under_way) {
  std::vector<harness::Figure> figures;
  if (!under_way) figures = measure::overhead_figures(bench, "put", threads);
  const char* op = under_way ? "put_stream" : "put";
  if (under_way) figures.push_back(bench.figure({"overhead", op, "rate", 8, 1, threads}));
  figures.push_back(bench.figure({"overhead", op, "doorbells", 8, 1, threads}));
  for (harness::Figure& figure : figures) {
    figure.key.transport = "heddle verbs";
    figure.key.memory = "registered";
  }
  figures.front().fixed = bench.options().quick ? kQuickPuts : kPuts;
  const auto post = [&](std::uint32_t thread) {
    putters.put(thread);
    return true;
  };
  const auto end = [&](std::uint32_t) { putters.flush(); };
  bench.at_origin(figures, threads, Owner::sleeps, [&](std::uint64_t n) {
    const std::uint64_t before = doorbells.load(std::memory_order_relaxed);
    const auto all = static_cast<double>(n * threads);
    Run run;
    if (under_way) {
      run.elapsed_ns = bench.together(threads, Owner::sleeps, [&](std::uint32_t thread) {
        for (std::uint64_t i = 0; i < n; ++i) post(thread);
        end(thread);
      });
      run.values = {all / run.elapsed_ns * 1e3};
    } else {
      run = measure::time_each(bench, threads, Owner::sleeps, n, post, end);
    }
    run.values.push_back(static_cast<double>(doorbells.load(std::memory_order_relaxed) - before) / all);
    run.verified =
        run.verified && measure::of_all(threads, [&](std::uint32_t thread) { return putters.right(thread); });
    return run;
  });
}

}  // namespace

void run_doorbells(Bench& bench, heddle_sharing sharing) {
  const std::atomic<std::uint64_t>* doorbells = find_counter();
  if (!bench.wants("overhead", "put") || doorbells == nullptr) return;
  for (const std::uint32_t threads : harness::threads_or(bench.options(), harness::kOverheadThreads)) {
    Putters putters(sharing, threads);
    for (const bool under_way : {false, true}) measure_doorbells(bench, putters, *doorbells, threads, under_way);
  }
}

}  // namespace heddle::bench::work
