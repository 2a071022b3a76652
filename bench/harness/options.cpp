#include "harness/options.hpp"

#include <algorithm>
#include <string_view>

#include "base/config.hpp"
#include "base/nearest.hpp"
#include "harness/collective_options.hpp"
#include "harness/option_values.hpp"

namespace heddle::bench::harness {

const char* const kUsage = R"(usage: heddle bench [NAME…] [options]
       heddle bench demo
       heddle bench COLLECTIVE… [options of collectives]
       heddle bench tune [COLLECTIVE…] [options of tune]

Measures Heddle and the machine's limit, with --peers beside UCX, MPI and OpenSHMEM; prints the median of each figure and its
interval. In a plain shell it starts two processes; inside a job of two (heddle run -n 2) it takes part.

Benchmarks, all of these if none is named:

  limit                    what the machine can do: cache lines to and fro, copies
  pingpong                 half a round trip of each operation
  rate                     small operations per second, by threads
  bandwidth                large operations, also from both sides at once
  atomics                  atomic operations, alone and on one word
  gups                     random updates of one table

Benchmarks only by name:

  demo                     the main job in under a minute, with a report
  reaction                 of progress policies: how soon an arrival is handled while the program computes
  compute                  of progress policies: what they take from a program that computes
  overhead                 posting, latency and rate for each sharing mode, as for LLCL
  fairness                 which of 8 threads run the handlers, as for UCCS
  duplex                   both directions at once, by threads and by processes, as for UCCS
  convolution              a matrix split among 4 and 16 threads, under each progress policy, as for PIOMan
  oversubscription         4 and 8 processes on the cores there are; 8 of 8 threads
  overlap                  send or receive, compute, wait, as for PIOMan
  aggregation              small messages with aggregation and without, also on a fabric that is busy
  network_tcp, network_posix
                           8 bytes over UCX's TCP, and its shared memory; with --peers beside UCX itself
  mixed_job                two ranks on one of two nodes, by shm,ucx, beside the same two by shm alone
  programs                 what programs do, with the library's own waits; --op latency,bw,bibw,mbw_mr,latency_mt,
                           pingpong_mt,put_latency,put_window,get_window,pairs,rpc,rpc_mt,halo,fan_in,overlap,exchange

Options:

  --op put,get,am,tagged,…
                           only these operations
  --size 8,4K,1M           sizes instead of each bench's own, where it has several
  --threads 1,2            threads per process (overhead: 1,2,4,8,15; duplex, network: 1,2,4,8; convolution: 2,8)
  --sharing shared,…       rate: also with all threads on one worker: shared, offload, delegate, mutex;
                           benches of papers: which modes (default: all but mutex; exclusive: a worker each);
                           programs: also auto, with a worker each, and auto_one
  --memory KIND            allocated, registered, both (of these two) or adopted; programs: malloc (buffers do not
                           begin with a page)
  --repeat R               repeats per figure (default 9)
  --time MS                time of one repeat in milliseconds (default 20; LLCL: --time 5000 --repeat 32)
  --total-words 20M        gups: words of the table, over both processes
  --peers                  the same work on UCX, MPI and OpenSHMEM, interleaved
  --busy N                 N processes compute beside each measurement, one to each core in turn
  --switches               programs: context switches for each window, too
  --json FILE              write the records; -: to standard output, and the table to standard error
  --quick                  short repeats: checks that everything runs, measures little
  -h, --help               show this text
)";

namespace {

bool parse_size(std::string_view text, std::uint64_t* out) {
  const auto bytes = base::parse_bytes(text);
  if (!bytes || *bytes == 0) return false;
  *out = *bytes;
  return true;
}

constexpr std::uint64_t kQuickNs = 1'000'000;
constexpr std::uint64_t kBusyNs = 100'000'000;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 28;
const std::vector<std::string> kOps = {"put", "put_flush", "put_wait", "get",  "am",    "tagged", "fadd",    "add",
                                       "and", "or",        "xor",      "swap", "cswap", "memcpy", "put_nbi", "p_quiet"};

const std::vector<std::string> kSharing = {"exclusive", "shared", "offload", "delegate", "mutex", "auto", "auto_one"};

template <class T>
std::string join(const std::vector<T>& items) {
  std::string out;
  for (const T& item : items) {
    if (!out.empty()) out += ',';
    if constexpr (std::is_same_v<T, std::string>) {
      out += item;
    } else {
      out += std::to_string(item);
    }
  }
  return out;
}

class Parser {
 public:
  Parser(Options* options, std::string* error) : options_(options), error_(error) {}

  bool option(std::string_view name, const char* value) {
    if (name == "--op") return list(name, value, [this](const std::string& item) { return op(item); });
    if (name == "--size") return list(name, value, [this](const std::string& item) { return size(item); });
    if (name == "--threads") return list(name, value, [this](const std::string& item) { return threads(item); });
    if (name == "--sharing") return list(name, value, [this](const std::string& item) { return sharing(item); });
    if (name == "--repeat") return number(name, value, 1, 1000, &options_->repeat);
    if (name == "--busy") return number(name, value, 1, 64, &options_->busy);
    if (name == "--processes") return number(name, value, 2, 64, &options_->processes);
    if (name == "--time") return time(value);
    if (name == "--memory") return memory(value);
    if (name == "--total-words") return words(value);
    if (name == "--json") return text(name, value, &options_->json);
    if (name == "--channel") return text(name, value, &options_->channel);
    if (name == "--cores") return text(name, value, &options_->cores);
    return fail("unknown option " + std::string(name) + base::did_you_mean(name, base::options_in(kUsage)));
  }
  bool fail(std::string message) {
    *error_ = std::move(message);
    return false;
  }

 private:
  template <class Each>
  bool list(std::string_view name, const char* value, Each each) {
    if (value == nullptr || *value == '\0') return fail(std::string(name) + " needs a list, such as a,b");
    const std::vector<std::string> items = split(value);
    return std::all_of(items.begin(), items.end(), each);
  }
  bool op(const std::string& item) {
    std::vector<std::string> all(kOps.begin(), kOps.end());
    all.insert(all.end(), kProgramNames.begin(), kProgramNames.end());
    if (std::find(all.begin(), all.end(), item) == all.end()) {
      return fail("--op " + item + " is not an operation" + base::did_you_mean(item, {all.begin(), all.end()}) +
                  "; there are put, get, am, tagged, fadd, add, and, or, xor, swap, cswap; of "
                  "OpenSHMEM put_nbi, p_quiet; of programs " +
                  join(kProgramNames));
    }
    options_->ops.push_back(item);
    return true;
  }
  bool size(const std::string& item) {
    std::uint64_t bytes = 0;
    if (!parse_size(item, &bytes) || bytes % 8 != 0 || bytes > kMaxSize) {
      return fail("--size " + item + " is not a multiple of 8 from 8 to 256M");
    }
    options_->sizes.push_back(bytes);
    return true;
  }
  bool threads(const std::string& item) {
    std::uint32_t count = 0;
    if (!parse_number(item, 1, 64, &count)) return fail("--threads " + item + " is not a number from 1 to 64");
    options_->threads.push_back(count);
    return true;
  }
  bool sharing(const std::string& item) {
    if (std::find(kSharing.begin(), kSharing.end(), item) == kSharing.end()) {
      return fail("--sharing " + item + " is not exclusive, shared, offload, delegate, mutex, auto or auto_one");
    }
    options_->sharing.push_back(item);
    return true;
  }
  bool number(std::string_view name, const char* value, std::uint32_t low, std::uint32_t high, std::uint32_t* out) {
    if (value != nullptr && parse_number(value, low, high, out)) return true;
    return fail(std::string(name) + " needs a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  bool time(const char* value) {
    std::uint32_t milliseconds = 0;
    if (!number("--time", value, 1, 10'000, &milliseconds)) return false;
    options_->target_ns = std::uint64_t{milliseconds} * 1'000'000;
    return true;
  }
  bool memory(const char* value) {
    const std::string_view kind = value != nullptr ? value : "";
    if (kind != "allocated" && kind != "registered" && kind != "both" && kind != "adopted" && kind != "malloc") {
      return fail("--memory needs allocated, registered, both, adopted or malloc");
    }
    options_->memory = kind;
    return true;
  }
  bool words(const char* value) {
    std::uint64_t count = 0;
    if (value == nullptr || !parse_size(value, &count) || count < 1024 || count > (std::uint64_t{1} << 33)) {
      return fail("--total-words needs a number from 1K to 8G, such as 20M");
    }
    options_->total_words = count;
    return true;
  }
  bool text(std::string_view name, const char* value, std::string* out) {
    if (value == nullptr || *value == '\0' || std::string_view(value).starts_with("--")) {
      return fail(std::string(name) + " needs a value");
    }
    *out = value;
    return true;
  }

  Options* options_;
  std::string* error_;
};

}  // namespace

namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::vector<std::string> kFlags = {"--peers", "--quick", "--pair", "--switches"};

std::string unknown_bench(std::string_view word) {
  if (is_collective_name(word) || word == "tune") {
    return std::string(word) + " is measured by itself: heddle bench " + std::string(word) + " [options]";
  }
  std::vector<std::string_view> names = {"demo", "tune"};
  for (const auto* some : {&kUsualNames, &kOtherNames, &kCollectiveNames}) {
    names.insert(names.end(), some->begin(), some->end());
  }
  return "there is no bench \"" + std::string(word) + "\"" + base::did_you_mean(word, names);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, std::string* error) {
  Options options;
  options.command = "heddle";
  for (int i = 0; i < argc; ++i) options.command += std::string(" ") + argv[i];
  Parser parser(&options, error);
  for (int i = 1; i < argc; ++i) {
    const char* value = nullptr;
    const std::string_view word = split_value(argv[i], &value);
    const bool has_value = value != nullptr;
    if (has_value && contains(kFlags, word)) {
      parser.fail(std::string(word) + " takes no value");
      return std::nullopt;
    }
    if (word == "--peers") {
      options.peers = true;
    } else if (word == "--switches") {
      options.switches = true;
    } else if (word == "--quick") {
      options.quick = true;
    } else if (word == "--pair") {
      options.pair = true;
    } else if (word == "demo") {
      options.demo = true;
    } else if (word.starts_with("--")) {
      if (!has_value && i + 1 < argc) value = argv[i + 1];
      if (!parser.option(word, value)) return std::nullopt;
      if (!has_value) ++i;
    } else if (contains(kUsualNames, word) || contains(kOtherNames, word)) {
      options.names.emplace_back(word);
    } else {
      parser.fail(unknown_bench(word));
      return std::nullopt;
    }
  }
  const bool programs_alone = options.names == std::vector<std::string>{"programs"};
  if (options.busy != 0 && !programs_alone) {
    parser.fail("--busy is for programs alone: heddle bench programs --busy " + std::to_string(options.busy));
    return std::nullopt;
  }
  if (programs_alone && options.memory != "both" && options.memory != "malloc") {
    parser.fail("--memory " + options.memory + ": heddle bench programs has buffers of whole pages, or malloc");
    return std::nullopt;
  }
  if (options.memory == "malloc" && !programs_alone) {
    parser.fail("--memory malloc is for programs alone: heddle bench programs --memory malloc");
    return std::nullopt;
  }
  // A repeat must see several time slices of those that compute beside it.
  if (options.busy != 0) options.target_ns = std::max(options.target_ns, kBusyNs);
  if (options.quick) {
    options.target_ns = std::min(options.target_ns, kQuickNs);
    options.retry_ns = 0;
  }
  return options;
}

std::vector<std::string> participant_arguments(const Options& options, std::uint32_t repeat) {
  std::vector<std::string> out = options.names;
  const auto add = [&out](const char* name, const std::string& value) {
    if (value.empty()) return;
    out.emplace_back(name);
    out.push_back(value);
  };
  add("--op", join(options.ops));
  add("--size", join(options.sizes));
  add("--threads", join(options.threads));
  add("--sharing", join(options.sharing));
  add("--memory", options.memory);
  add("--repeat", std::to_string(repeat));
  add("--time", std::to_string(options.target_ns / 1'000'000));
  if (options.total_words != 0) add("--total-words", std::to_string(options.total_words));
  add("--channel", options.channel);
  add("--cores", options.cores);
  if (options.busy != 0) add("--busy", std::to_string(options.busy));
  if (options.switches) out.emplace_back("--switches");
  if (options.quick) out.emplace_back("--quick");
  return out;
}

std::vector<std::uint64_t> sizes_or(const Options& options, std::vector<std::uint64_t> sizes) {
  return options.sizes.empty() ? sizes : options.sizes;
}

bool wants_bench(const Options& options, std::string_view name) {
  return contains(options.names.empty() ? kUsualNames : options.names, name);
}

bool wants_op(const Options& options, std::string_view op) {
  return options.ops.empty() || contains(options.ops, op);
}

bool wants_mode(const Options& options, std::string_view name) {
  return options.sharing.empty() ? name != "mutex" : wants_sharing(options, name);
}

bool wants_sharing(const Options& options, std::string_view name) {
  return std::find(options.sharing.begin(), options.sharing.end(), name) != options.sharing.end();
}

std::vector<std::uint32_t> threads_of(const Options& options) {
  return threads_or(options, {1, 2});
}

std::uint64_t duplex_stretch(const Options& options) {
  const auto sizes = sizes_or(options, kDuplexSizes);
  return *std::max_element(sizes.begin(), sizes.end());
}

const char* network_of(const Options& options) {
  for (const std::string& name : kNetworkNames) {
    if (wants_bench(options, name)) return name.c_str();
  }
  return nullptr;
}

std::vector<std::uint32_t> network_threads(const Options& options) {
  if (options.quick || wants_bench(options, "mixed_job")) return threads_or(options, {1});
  return threads_or(options, {1, 2, 4, 8});
}

std::vector<std::uint32_t> threads_or(const Options& options, std::vector<std::uint32_t> threads) {
  return options.threads.empty() ? threads : options.threads;
}

}  // namespace heddle::bench::harness
