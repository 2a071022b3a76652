#include "harness/options.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

#include "base/config.hpp"

namespace heddle::bench::harness {

const char* const kUsage = R"(usage: heddle bench [NAME…] [options]
       heddle bench demo
       heddle bench COLLECTIVE… [options]
       heddle bench tune [COLLECTIVE…] [options]

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
  network_tcp, network_posix
                           8 bytes over UCX's TCP, and its shared memory; with --peers beside UCX itself
  network_ofi              8 bytes over libfabric, by the provider that HEDDLE_OFI_PROVIDER and HEDDLE_NET_DEVICES
                           name or else the best; with --peers beside libfabric itself, and Heddle over UCX's TCP
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
  --spread                 the best repeat, and what 99 % of them reach, instead of the interval: with --repeat 100
  --json FILE              write the records; -: to standard output, and the table to standard error
  --quick                  short repeats: checks that everything runs, measures little
  -h, --help               show this text

Collective operations, each by itself:

  barrier, broadcast, reduce, allreduce, reduce_scatter, scan, gather, gatherv, allgather, allgatherv, scatter, scatterv,
  alltoall, alltoallv, neighbor_alltoallv
                           in each form the time from when the last member has begun to when the last one has ended; of it
                           what starting and waiting take the member that is worst off (…_start, …_wait); what making a
                           persistent one takes (…_init); and all with a computation of that length between start and
                           wait (…_overlapped). Of barrier also one after another. Blocks are all equal, those in lists
                           (…v) too; neighbours are a ring, a block to each side
  tune                     every algorithm of these operations, and a table of the fastest for HEDDLE_COLLECTIVE_TABLE

Options of collectives, besides --size, --repeat, --time, --peers, --json, --quick and --memory (allocated or own):

  --ranks 2,4              processes; one job of each (inside a job: all that there are)
  --max 128M               the largest size, where none is named (default 16M; from 8 by powers of 4)
  --form FORM,…            persistent, nonblocking, blocking (default: all)
  --algorithm NAME         of persistent ones, such as broadcast.binomial (heddle info --schedule list)
  --overlap yes|no         measure with a computation too (default yes)
  --output FILE            tune: the table (default heddle-collectives.txt)

Examples:

  heddle bench rate --peers                 small operations beside UCX, MPI and OpenSHMEM
  heddle bench programs --op pairs          what a program reaches with pairs of threads
  heddle bench allreduce --ranks 4 --peers  times of allreduce among four ranks
)";

namespace {

using Strings = std::vector<std::string>;

constexpr std::uint64_t kQuickNs = 1'000'000;
constexpr std::uint64_t kBusyNs = 100'000'000;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 28;
const Strings kOps = [] {
  Strings all = {"put", "put_flush", "put_wait", "get",  "am",    "tagged", "fadd",    "add",
                 "and", "or",        "xor",      "swap", "cswap", "memcpy", "put_nbi", "p_quiet"};
  all.insert(all.end(), kProgramNames.begin(), kProgramNames.end());
  return all;
}();
const Strings kSharing = {"exclusive", "shared", "offload", "delegate", "mutex", "auto", "auto_one"};
const Strings kMemory = {"allocated", "registered", "both", "adopted", "malloc", "own"};
const Strings kYesNo = {"yes", "no"};

// ---- values -------------------------------------------------------------------------------------

// At commas.
Strings split(std::string_view text) {
  Strings parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

template <class T>
std::string join(const std::vector<T>& items, const char* between = ",") {
  std::string out;
  for (const T& item : items) {
    if (!out.empty()) out += between;
    if constexpr (std::is_same_v<T, std::string>) {
      out += item;
    } else {
      out += std::to_string(item);
    }
  }
  return out;
}

bool parse_number(std::string_view text, std::uint32_t low, std::uint32_t high, std::uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc{} && end == text.data() + text.size() && *out >= low && *out <= high;
}

bool parse_bytes(std::string_view text, std::uint64_t low, std::uint64_t high, std::uint64_t* out) {
  const auto bytes = base::parse_bytes(text);
  if (!bytes || *bytes < low || *bytes > high) return false;
  *out = *bytes;
  return true;
}

bool parse_size(std::string_view text, std::uint64_t* out) {
  return parse_bytes(text, 8, kMaxSize, out) && *out % 8 == 0;
}

// ---- the table of options -----------------------------------------------------------------------

enum class Of : std::uint8_t { all, usual, collectives, tune };

struct Option {
  std::string_view name;
  Of of;
  std::string expected;                                // of a value; empty: it takes none
  std::function<bool(const std::string& value)> read;  // false: it is not what is expected
  std::function<std::string()> told = {};              // the value for a participant; empty: none
  const Strings* known = nullptr;                      // where items of a list are names
};

Option flag(std::string_view name, Of of, bool* to) {
  return {name, of, "", [to](const std::string&) { return *to = true; }, [to] { return *to ? "yes" : ""; }};
}
Option text(std::string_view name, Of of, std::string* to) {
  return {name, of, "a text", [to](const std::string& value) { return !(*to = value).empty(); }, [to] { return *to; }};
}
Option number(std::string_view name, std::uint32_t low, std::uint32_t high, std::uint32_t* to) {
  return {name, Of::all, "a number from " + std::to_string(low) + " to " + std::to_string(high),
          [=](const std::string& value) { return parse_number(value, low, high, to); },
          [to] { return std::to_string(*to); }};
}
template <class T, class Read>
Option list(std::string_view name, Of of, const char* expected, std::vector<T>* to, Read&& read) {
  return {name, of, expected,
          [to, read](const std::string& value) {
            to->clear();
            for (const std::string& item : split(value)) {
              if (!read(item, &to->emplace_back())) return false;
            }
            return true;
          },
          [to] { return join(*to); }};
}
Option names(std::string_view name, Of of, const char* expected, const Strings& known, Strings* to) {
  Option out = list(name, of, expected, to,
                    [&known](const std::string& item, std::string* one) { return contains(known, *one = item); });
  out.known = &known;
  return out;
}

// Not passed to participants: options of the driver alone.
std::vector<Option> options_into(BenchOptions* to, std::uint64_t* max) {
  const auto up_to_64 = [](const std::string& item, std::uint32_t* one) { return parse_number(item, 1, 64, one); };
  const auto milliseconds = [to](const std::string& value) {
    std::uint32_t time = 0;
    if (!parse_number(value, 1, 10'000, &time)) return false;
    to->target_ns = std::uint64_t{time} * 1'000'000;
    return true;
  };
  const auto words = [to](const std::string& value) {
    return parse_bytes(value, 1024, std::uint64_t{1} << 33, &to->total_words);
  };
  const auto memory = [to](const std::string& value) { return contains(kMemory, to->memory = value); };
  const auto overlap = [to](const std::string& value) {
    to->overlap = value == "yes";
    return contains(kYesNo, value);
  };
  std::vector<Option> all = {
      names("--op", Of::usual, "an operation", kOps, &to->ops),
      list("--size", Of::all, "a list of multiples of 8 from 8 to 256M", &to->sizes, parse_size),
      list("--threads", Of::usual, "a list of numbers from 1 to 64", &to->threads, up_to_64),
      names("--sharing", Of::usual, "a sharing mode", kSharing, &to->sharing),
      {"--memory", Of::all, join(kMemory, " or "), memory, [to] { return to->memory; }},
      number("--repeat", 1, 1000, &to->repeat),
      {"--time", Of::all, "a number of milliseconds from 1 to 10000", milliseconds,
       [to] { return std::to_string(to->target_ns / 1'000'000); }},
      {"--total-words", Of::usual, "a number from 1K to 8G, such as 20M", words,
       [to] { return to->total_words == 0 ? "" : std::to_string(to->total_words); }},
      number("--busy", 0, 64, &to->busy),
      flag("--switches", Of::usual, &to->switches),
      flag("--spread", Of::usual, &to->spread),
      flag("--quick", Of::all, &to->quick),
      names("--form", Of::collectives, "a form", kCollectiveForms, &to->forms),
      text("--algorithm", Of::collectives, &to->algorithm),
      {"--overlap", Of::collectives, "yes or no", overlap, [to] { return to->overlap ? "yes" : "no"; }},
      text("--channel", Of::all, &to->channel),
      text("--cores", Of::all, &to->cores),
  };
  const std::size_t told = all.size();
  all.insert(all.end(), {flag("--peers", Of::all, &to->peers),
                         text("--json", Of::all, &to->json),
                         list("--ranks", Of::collectives, "a list of numbers from 1 to 64", &to->ranks, up_to_64),
                         {"--max", Of::collectives, "a multiple of 8 up to 256M",
                          [max](const std::string& value) { return parse_size(value, max); }},
                         text("--output", Of::tune, &to->output),
                         flag("--pair", Of::all, &to->pair),
                         number("--processes", 1, 64, &to->processes)});
  for (std::size_t i = told; i < all.size(); ++i) all[i].told = {};
  return all;
}

// ---- words --------------------------------------------------------------------------------------

std::string rejection(const Option& option, const std::string& value) {
  const std::string name(option.name);
  if (option.known == nullptr) return name + " " + value + " is not " + option.expected;
  const Strings items = split(value);
  const auto wrong =
      std::find_if(items.begin(), items.end(), [&](const auto& one) { return !contains(*option.known, one); });
  return name + " " + *wrong + " is not " + option.expected +
         base::did_you_mean(*wrong, {option.known->begin(), option.known->end()}) + "; there are " +
         join(*option.known, ", ");
}

std::string unknown_bench(std::string_view word) {
  std::vector<std::string_view> known = {"demo", "tune"};
  for (const auto* some : {&kUsualNames, &kOtherNames, &kCollectiveNames}) {
    known.insert(known.end(), some->begin(), some->end());
  }
  return "there is no bench \"" + std::string(word) + "\"" + base::did_you_mean(word, known);
}

// Errors in the combination of options that are valid each by itself; empty: none.
std::string contradiction(const BenchOptions& options, const std::vector<const Option*>& given) {
  const bool collectives = are_collectives(options);
  for (const std::string& name : options.names) {
    if (contains(kCollectiveNames, name) == collectives) continue;
    const std::string& by_itself = collectives ? options.names.front() : name;
    return by_itself + " is measured by itself: heddle bench " + by_itself + " [options]";
  }
  for (const Option* option : given) {
    const std::string name(option->name);
    if (option->of == Of::usual && collectives) return name + " is not for collectives";
    if (option->of == Of::collectives && !collectives)
      return name + " is for collectives: heddle bench barrier " + name;
    if (option->of == Of::tune && !options.tune) return name + " is for tune: heddle bench tune " + name;
    const bool fixed = name == "--form" || name == "--algorithm" || name == "--memory" || name == "--peers";
    if (options.tune && fixed) return name + " is not for tune, which tries what Heddle has";
  }
  const std::string& algorithm = options.algorithm;
  if (!algorithm.empty() && !contains(options.names, algorithm.substr(0, algorithm.find('.'))))
    return "--algorithm " + algorithm + " is of none of the operations that are named";
  if (!algorithm.empty() && !contains(options.forms, "persistent"))
    return "--algorithm is for the persistent form; HEDDLE_COLLECTIVE_ALGORITHMS is for all";
  const bool programs_alone = options.names == Strings{"programs"};
  const std::string& memory = options.memory;
  if (options.busy != 0 && !programs_alone)
    return "--busy is for programs alone: heddle bench programs --busy " + std::to_string(options.busy);
  if (programs_alone && memory != "both" && memory != "malloc")
    return "--memory " + memory + ": heddle bench programs has buffers of whole pages, or malloc";
  if (memory == "malloc" && !programs_alone)
    return "--memory malloc is for programs alone: heddle bench programs --memory malloc";
  const bool fits = collectives ? contains({"both", "allocated", "own"}, memory) : memory != "own";
  if (!fits) return "--memory " + memory + ": collectives have allocated or own, which no others have";
  return {};
}

void complete(BenchOptions* options, std::uint64_t max) {
  if (options->tune && options->names.empty()) options->names = kCollectiveNames;
  if (are_collectives(*options) && options->sizes.empty()) {
    options->sizes = {8, 64};
    for (std::uint64_t size = 1024; size <= max; size *= 4) options->sizes.push_back(size);
  }
  // A repeat must see several time slices of those that compute beside it.
  if (options->busy != 0) options->target_ns = std::max(options->target_ns, kBusyNs);
  if (options->quick) {
    options->target_ns = std::min(options->target_ns, kQuickNs);
    options->retry_ns = 0;
  }
}

}  // namespace

std::optional<BenchOptions> parse_options(int argc, char** argv, std::string* error) {
  BenchOptions options;
  std::uint64_t max = std::uint64_t{1} << 24;
  error->clear();
  options.command = "heddle";
  for (int i = 0; i < argc; ++i) options.command += std::string(" ") + argv[i];
  const std::vector<Option> table = options_into(&options, &max);
  std::vector<const Option*> given;
  const auto read = [&](std::string_view word, int* at) -> std::string {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const auto option = std::find_if(table.begin(), table.end(), [&](const Option& one) { return one.name == name; });
    if (option == table.end())
      return "unknown option " + std::string(name) + base::did_you_mean(name, base::options_in(kUsage));
    given.push_back(&*option);
    const bool behind = equals < word.size();  // the value, in the same word
    if (option->expected.empty()) {
      if (behind) return std::string(name) + " takes no value";
      option->read("");
      return {};
    }
    std::string value(behind ? word.substr(equals + 1) : "");
    if (!behind && *at + 1 < argc && !std::string_view(argv[*at + 1]).starts_with("--")) value = argv[++*at];
    if (value.empty()) return std::string(name) + " needs a value: " + option->expected;
    return option->read(value) ? "" : rejection(*option, value);
  };
  for (int i = 1; i < argc && error->empty(); ++i) {
    const std::string_view word = argv[i];
    const bool known = contains(kUsualNames, word) || contains(kOtherNames, word) || contains(kCollectiveNames, word);
    if (word.starts_with("-")) {
      *error = read(word, &i);
    } else if (word == "demo" || word == "tune") {
      (word == "demo" ? options.demo : options.tune) = true;
    } else if (known) {
      options.names.emplace_back(word);
    } else {
      *error = unknown_bench(word);
    }
  }
  if (!error->empty()) return std::nullopt;
  complete(&options, max);
  *error = contradiction(options, given);
  return error->empty() ? std::optional(options) : std::nullopt;
}

std::vector<std::string> participant_arguments(BenchOptions options, std::uint32_t repeat) {
  options.repeat = repeat;
  Strings out = options.names;
  std::uint64_t max = 0;
  for (const Option& option : options_into(&options, &max)) {
    const std::string value = option.told ? option.told() : "";
    if (value.empty() || option.of == (are_collectives(options) ? Of::usual : Of::collectives)) continue;
    out.emplace_back(option.name);
    if (!option.expected.empty()) out.push_back(value);
  }
  return out;
}

std::vector<std::uint64_t> sizes_or(const BenchOptions& options, std::vector<std::uint64_t> sizes) {
  return options.sizes.empty() ? sizes : options.sizes;
}

bool wants_bench(const BenchOptions& options, std::string_view name) {
  return contains(options.names.empty() ? kUsualNames : options.names, name);
}

bool wants_op(const BenchOptions& options, std::string_view op) {
  return options.ops.empty() || contains(options.ops, op);
}

bool wants_mode(const BenchOptions& options, std::string_view name) {
  return options.sharing.empty() ? name != "mutex" : wants_sharing(options, name);
}

bool wants_sharing(const BenchOptions& options, std::string_view name) {
  return contains(options.sharing, name);
}

std::vector<std::uint32_t> threads_of(const BenchOptions& options) {
  return threads_or(options, {1, 2});
}

std::uint64_t duplex_stretch(const BenchOptions& options) {
  const auto sizes = sizes_or(options, kDuplexSizes);
  return *std::max_element(sizes.begin(), sizes.end());
}

const char* network_of(const BenchOptions& options) {
  for (const std::string& name : kNetworkNames) {
    if (wants_bench(options, name)) return name.c_str();
  }
  return nullptr;
}

std::vector<std::uint32_t> network_threads(const BenchOptions& options) {
  if (options.quick || wants_bench(options, "mixed_job")) return threads_or(options, {1});
  return threads_or(options, {1, 2, 4, 8});
}

std::vector<std::uint32_t> threads_or(const BenchOptions& options, std::vector<std::uint32_t> threads) {
  return options.threads.empty() ? threads : options.threads;
}

}  // namespace heddle::bench::harness
