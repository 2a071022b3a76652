#include "base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/clock.hpp"

namespace heddle::base {

namespace {

constexpr std::uint64_t kKi = std::uint64_t{1} << 10;
constexpr std::uint64_t kMi = std::uint64_t{1} << 20;
constexpr std::uint64_t kGi = std::uint64_t{1} << 30;
constexpr std::uint64_t kAnyNumber = ~std::uint64_t{0};

constexpr std::array<Variable, static_cast<std::size_t>(Var::kCount)> kVariables = {{
    {Var::transport, "HEDDLE_TRANSPORT", Type::text, "auto",
     "transport of the job: a name that `heddle info transports` lists; NEAR,FAR: the ranks of one's own node by "
     "NEAR, the others by FAR; fault+NAME adds the faults of HEDDLE_FAULT; auto: by where the ranks are, from "
     "HEDDLE_TRANSPORTS"},
    {Var::transports, "HEDDLE_TRANSPORTS", Type::text, "",
     "transports that the job may use: one, or NEAR,FAR,…: the first within a node, the first of the others that all "
     "ranks can use between nodes; empty: shm, and the best network (docs/clusters.md)"},
    {Var::node_ranks,
     "HEDDLE_NODE_RANKS",
     Type::count,
     "0",
     "ranks of one machine that share a node, in the order of ranks, for tests and where containers divide a machine; "
     "0: all; the same in all ranks",
     {0, 1024}},
    {Var::bootstrap, "HEDDLE_BOOTSTRAP", Type::text, "auto",
     "how a process joins its job: auto (whatever has started it), local (heddle run), pmix, pmi, or single (a job of "
     "one)"},
    {Var::sharing, "HEDDLE_SHARING", Type::text, "auto",
     "sharing mode of workers opened with HEDDLE_SHARING_DEFAULT: a name that `heddle info engine` lists"},
    {Var::progress, "HEDDLE_PROGRESS", Type::text, "none",
     "who makes progress besides the application: none, dedicated:N, idle or adaptive (see the guide)"},
    {Var::max_workers,
     "HEDDLE_MAX_WORKERS",
     Type::count,
     "64",
     "workers that one process may open, those that it has closed included: numbers are not used again; the same in "
     "all "
     "ranks",
     {1, 256}},
    {Var::meet_ranks,
     "HEDDLE_MEET_RANKS",
     Type::count,
     "64",
     "heddle_region_exchange meets every peer in jobs of up to so many ranks; in larger ones a peer is met at the "
     "first "
     "access to its memory",
     {0, 1024}},
    {Var::worker_operations,
     "HEDDLE_WORKER_OPERATIONS",
     Type::count,
     "1024",
     "operations in flight per worker before HEDDLE_AGAIN",
     {16, 65536}},
    {Var::am_max_bytes, "HEDDLE_AM_MAX_BYTES", Type::bytes, "256M", "largest active-message payload"},
    {Var::am_reassembly_bytes, "HEDDLE_AM_REASSEMBLY_BYTES", Type::bytes, "1G",
     "most memory one worker holds for active messages that arrive in parts; beyond it senders get NO_MEMORY"},
    {Var::am_eager_bytes, "HEDDLE_AM_EAGER_BYTES", Type::bytes, "0",
     "longest active-message payload that is sent in parts; a longer one is fetched by its receiver, if the transport "
     "has gets; 0: as it advises"},
    {Var::tag_credit_bytes,
     "HEDDLE_TAG_CREDIT_BYTES",
     Type::bytes,
     "4M",
     "most memory one worker keeps of tagged messages of one sending worker that nobody has received yet, and as "
     "much again for what it knows of long ones; the same in all ranks",
     {64 * kKi, kGi}},
    {Var::tag_eager_bytes, "HEDDLE_TAG_EAGER_BYTES", Type::bytes, "0",
     "longest tagged message that is sent before its receive is known; a longer one waits for that, and so may one of "
     "2K or more without credit; 0: 512K to peers of this machine (half of HEDDLE_TAG_CREDIT_BYTES if that is less), "
     "one packet over networks"},
    {Var::am_user_bytes,
     "HEDDLE_AM_USER_BYTES",
     Type::bytes,
     "256K",
     "USER messages that one worker may have on their way to, or waiting in, one worker of a peer before "
     "HEDDLE_AGAIN; the same in all ranks",
     {4 * kKi, kGi}},
    {Var::small_offload, "HEDDLE_SMALL_OFFLOAD", Type::text, "off",
     "a nonblocking message of more than 1K with a completion is only registered, for a helper or the next call that "
     "waits to "
     "submit: off, on, or auto (where that is measured to cost less)"},
    {Var::shm_ring_bytes,
     "HEDDLE_SHM_RING_BYTES",
     Type::bytes,
     "0",
     "message ring of one worker to one worker, control lines included; a message of up to a quarter may be copied at "
     "once; the same in all ranks; 0: 132K in jobs of up to 33 ranks, 68K up to 65, 36K in larger ones",
     {2 * kKi, 16 * kMi, 64, true}},
    {Var::shm_direct, "HEDDLE_SHM_DIRECT", Type::flag, "1", "map peers' allocated regions for direct loads and stores"},
    {Var::shm_cma, "HEDDLE_SHM_CMA", Type::flag, "1", "use process_vm_readv/writev where the kernel allows it"},
    {Var::shm_bounce, "HEDDLE_SHM_BOUNCE", Type::text, "",
     "bounce space for puts and gets of ordinary memory: pool=1M,chunk=16K,patience=5us"},
    {Var::shm_bounce_pool_bytes, "HEDDLE_SHM_BOUNCE.pool", Type::bytes, "1M",
     "of a process; larger than the L2 cache is faster; 0: none"},
    {Var::shm_bounce_chunk_bytes,
     "HEDDLE_SHM_BOUNCE.chunk",
     Type::bytes,
     "16K",
     "unit in which it is lent",
     {kKi, kMi, 64}},
    {Var::shm_bounce_patience_ns, "HEDDLE_SHM_BOUNCE.patience", Type::time_ns, "5us",
     "how long a chunk waits for a peer that makes no progress before CMA takes over; a long transfer waits for a "
     "tenth of CMA's time if that is longer"},
    {Var::shm_membarrier, "HEDDLE_SHM_MEMBARRIER", Type::flag, "1",
     "let a process that goes to sleep pay for the barrier (needs the kernel's membarrier); 0: senders pay a fence"},
    {Var::reg_cache, "HEDDLE_REG_CACHE", Type::flag, "1",
     "transports that register the program's memory keep registrations; 0: each operation registers and deregisters; "
     "parts: entries=1024,bytes=4G,check=64K,watch=1"},
    {Var::reg_cache_entries,
     "HEDDLE_REG_CACHE.entries",
     Type::count,
     "1024",
     "registrations that one queue keeps",
     {1, 65536}},
    {Var::reg_cache_bytes,
     "HEDDLE_REG_CACHE.bytes",
     Type::bytes,
     "4G",
     "memory that one queue keeps registered",
     {64 * kKi, kAnyNumber}},
    {Var::reg_cache_check_bytes, "HEDDLE_REG_CACHE.check", Type::bytes, "64K",
     "from here on a kept registration is used only after the kernel was asked whether memory is being unmapped now"},
    {Var::reg_cache_watch, "HEDDLE_REG_CACHE.watch", Type::flag, "1",
     "keep registrations only where the kernel tells of memory that is unmapped; 0: everywhere, for programs that "
     "unmap nothing they have communicated with"},
    {Var::collective_bytes,
     "HEDDLE_COLLECTIVE_BYTES",
     Type::bytes,
     "16M",
     "address space of each rank for the counters and slots of collectives; memory is what they touch; part: "
     "segment=64K",
     {kMi, 64 * kGi, 64 * kKi}},
    {Var::collective_segment_bytes,
     "HEDDLE_COLLECTIVE_BYTES.segment",
     Type::bytes,
     "64K",
     "most bytes of one step of a collective that goes in pieces",
     {64, kGi, 64}},
    {Var::collective_algorithms, "HEDDLE_COLLECTIVE_ALGORITHMS", Type::text, "",
     "algorithms to use, such as broadcast.chain,allreduce.ring (`heddle info --schedule` lists them); empty: by size"},
    {Var::collective_table, "HEDDLE_COLLECTIVE_TABLE", Type::text, "",
     "file that says which algorithm is fastest where, as `heddle bench tune` writes it; the same for all ranks"},
    {Var::libraries, "HEDDLE_LIBRARIES", Type::text, "",
     "other libraries of networks, names that the loader knows or files: ucx=/opt/ucx/lib/libucp.so.0,ofi=…"},
    {Var::library_ucx, "HEDDLE_LIBRARIES.ucx", Type::text, "libucp.so.0", "UCX"},
    {Var::library_ofi, "HEDDLE_LIBRARIES.ofi", Type::text, "libfabric.so.1", "libfabric"},
    {Var::library_verbs, "HEDDLE_LIBRARIES.verbs", Type::text, "libibverbs.so.1", "libibverbs"},
    {Var::library_utofu, "HEDDLE_LIBRARIES.utofu", Type::text, "libtofucom.so", "the uTofu library"},
    {Var::network_devices, "HEDDLE_NET_DEVICES", Type::text, "",
     "network devices of this job. ucx: as for UCX_NET_DEVICES (empty: as that says); ofi: libfabric's domain, an "
     "interface or a device such as eth0 (empty: its first); verbs: an adapter, or adapter and port, such as mlx5_0 or "
     "mlx5_0:1 (empty: the nearest that is up), two of them whose workers take turns, such as mlx5_0,mlx5_1:2, or "
     "auto: "
     "the nearest, if there are two"},
    {Var::network_window_bytes,
     "HEDDLE_NETWORK_WINDOW_BYTES",
     Type::bytes,
     "0",
     "ucx, ofi, verbs: messages of one worker to another that are on their way or wait in the receiver; the same in "
     "all "
     "ranks; 0: 42K, verbs 8K; ucx and ofi: at least 24K",
     {8 * kKi, 16 * kMi, 64, true}},
    {Var::network_timeout,
     "HEDDLE_NETWORK_TIMEOUT",
     Type::time_ns,
     "30s",
     "ucx over TCP, ofi, verbs: a connection whose other end answers nothing, or that is not made, for so long (1s at "
     "least) is lost; 0: when the system gives it up",
     {0, 240 * kSecondNs}},
    {Var::utofu_exclusive, "HEDDLE_UTOFU_EXCLUSIVE", Type::count, "24",
     "workers of a process that get a CQ of their own, as long as there are any; further ones share CQs, under a lock"},
    {Var::utofu_mrq_depth,
     "HEDDLE_UTOFU_MRQ_DEPTH",
     Type::count,
     "1024",
     "notices that a receive queue of the machine holds; decides how many senders a worker may have, and slots for "
     "each",
     {64, 1 << 20}},
    {Var::utofu_sessions, "HEDDLE_UTOFU_SESSIONS", Type::count, "64",
     "VCQs in session mode that a process may take for persistent collectives; 0: these run in software; part: "
     "depth=1024"},
    {Var::utofu_session_depth,
     "HEDDLE_UTOFU_SESSIONS.depth",
     Type::count,
     "1024",
     "commands of one run that such a VCQ is given, at most; alike on all ranks",
     {8, 1 << 20}},
    {Var::utofu_spread_bytes, "HEDDLE_UTOFU_SPREAD_BYTES", Type::bytes, "64K",
     "from so many bytes on a rank of broadcast.trinaryx3_session has a VCQ in session mode for each child, on TNIs of "
     "their own, if it gets them; 0: always one for all children in a tree, so that more operations find some"},
    {Var::utofu_gates, "HEDDLE_UTOFU_GATES", Type::count, "48",
     "barrier gates that a process may take for barriers and small reductions of teams; 0: these run in software"},
    {Var::utofu_single_thread, "HEDDLE_UTOFU_SINGLE_THREAD", Type::flag, "0",
     "one thread of the process makes all calls of the uTofu library; all workers are then in offload mode"},
    {Var::ucx_tls, "HEDDLE_UCX_TLS", Type::text, "",
     "UCX transports of this job, as for UCX_TLS, which the rest of the program keeps; empty: as UCX_TLS says. If that "
     "says nothing either, and shm is in the job: all but UCX's shared memory"},
    {Var::ofi_provider, "HEDDLE_OFI_PROVIDER", Type::text, "",
     "libfabric's provider for this job, such as tcp;ofi_rxm; empty: the best that serves (`heddle info` lists them)"},
    {Var::ofi_domains, "HEDDLE_OFI_DOMAINS", Type::text, "auto",
     "libfabric's domains of a process: worker (one for each worker, which do not wait for each other), shared, or "
     "auto: worker where the provider allows it"},
    {Var::verbs_stripe_bytes,
     "HEDDLE_VERBS_STRIPE_BYTES",
     Type::bytes,
     "256K",
     "with two adapters: puts and gets longer than this (8K at least) are split, a half for each; 0: never",
     {0, UINT32_MAX}},
    {Var::verbs_gid_index, "HEDDLE_VERBS_GID_INDEX", Type::text, "",
     "entry of the port's table of GIDs; empty: RoCE version 2 over IPv4 where it is there, else the first"},
    {Var::fault, "HEDDLE_FAULT", Type::text, "",
     "faults of fault transports: again=30,delay=5,reorder=1,latency=1us,seed=1"},
    {Var::fault_seed, "HEDDLE_FAULT.seed", Type::count, "1", "of all random choices"},
    {Var::fault_delay,
     "HEDDLE_FAULT.delay",
     Type::count,
     "0",
     "hold a completion back for up to this many polls; everything must come to an end",
     {0, 1'000'000}},
    {Var::fault_reorder, "HEDDLE_FAULT.reorder", Type::flag, "0", "shuffle commands and completions"},
    {Var::fault_again,
     "HEDDLE_FAULT.again",
     Type::count,
     "0",
     "percentage of posts that are refused (and, if not 0, every other import); something must get through",
     {0, 95}},
    {Var::fault_latency,
     "HEDDLE_FAULT.latency",
     Type::time_ns,
     "0",
     "time of the way to the peer, and of completions back",
     {0, kSecondNs}},
    {Var::log, "HEDDLE_LOG", Type::text, "warn", "what is written to standard error: error, warn, info or debug"},
    {Var::stats, "HEDDLE_STATS", Type::flag, "0", "print each worker's counters when it closes"},
    {Var::trace, "HEDDLE_TRACE", Type::text, "",
     "note what happens to each operation in files with this name, one for each rank (.rank0, …); `heddle run --trace` "
     "sets it, and makes one file of them"},
    {Var::trace_bytes,
     "HEDDLE_TRACE_BYTES",
     Type::bytes,
     "8M",
     "a trace keeps so much of each thread, the newest: 32 bytes for each record; rounded up to a power of two",
     {64 * kKi, 64 * kGi}},
    {Var::probes, "HEDDLE_PROBES", Type::flag, "0",
     "static probes (USDT) of each operation and handler, for bpftrace and perf; those of waits and collectives are "
     "always there"},
    {Var::hang_seconds,
     "HEDDLE_HANG_SECONDS",
     Type::count,
     "60",
     "when nothing of the job has moved for so many seconds and somebody waits, the launcher says who is to blame; in "
     "a "
     "job without one, if this is set, a call that has waited for so long says what is pending; 0: never",
     {0, 1'000'000}},
    {Var::close_timeout,
     "HEDDLE_CLOSE_TIMEOUT",
     Type::time_ns,
     "60s",
     "heddle_worker_close returns TIMEOUT, and the worker stays open, when its unfinished operations grow no fewer for "
     "so long; "
     "0: it waits for as long as their peers live",
     {0, 86'400 * kSecondNs}},
    {Var::shmem_check, "HEDDLE_CHECK", Type::text, "on",
     "OpenSHMEM programs: mistakes that are looked for: off (what costs nothing), on (collectives too) or full (every "
     "operation, by the slower way of the engine). MPI programs: full looks for more than wrong arguments: messages "
     "whose receives are of other elements, collectives that differ, buffers that change, what is not freed"},
    {Var::mpi_no_any_tag, "HEDDLE_MPI_NO_ANY_TAG", Type::flag, "0",
     "MPI programs: no receive or probe uses MPI_ANY_TAG, as if every communicator had been made with "
     "mpi_assert_no_any_tag: threads on one communicator, with tags of their own, share nothing"},
}};

// Row i describes the i-th Var, and has a name, a default value and a help text.
constexpr bool rows_match_vars() {
  for (std::size_t i = 0; i < kVariables.size(); ++i) {
    const Variable& row = kVariables[i];
    if (row.var != static_cast<Var>(i) || row.default_value == nullptr || row.help == nullptr) return false;
    if (row.range.least > row.range.most || row.range.unit == 0) return false;
    if (row.name == nullptr || !std::string_view(row.name).starts_with("HEDDLE_")) return false;
  }
  return true;
}
static_assert(rows_match_vars(),
              "a row of kVariables is missing, unnamed, without a sound range, or not at the place of its Var");

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> with_unit(std::string_view text,
                                       std::span<const std::pair<std::string_view, std::uint64_t>> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto value = parse_number(text.substr(0, digits));
  if (!value) return std::nullopt;
  for (const auto& [unit, factor] : units) {
    std::uint64_t product = 0;
    if (text.substr(digits) == unit && !__builtin_mul_overflow(*value, factor, &product)) return product;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_flag(std::string_view text) {
  if (text == "1" || text == "yes" || text == "on" || text == "true") return 1;
  if (text == "0" || text == "no" || text == "off" || text == "false") return 0;
  return std::nullopt;
}

std::optional<std::uint64_t> parse(Type type, std::string_view text) {
  switch (type) {
    case Type::text:
      return 0;
    case Type::count:
      return parse_number(text);
    case Type::bytes:
      return parse_bytes(text);
    case Type::time_ns:
      return parse_time_ns(text);
    case Type::flag:
      return parse_flag(text);
  }
  return std::nullopt;
}

const char* accepted(Type type) {
  switch (type) {
    case Type::text:
      return "text";
    case Type::count:
      return "a whole number";
    case Type::bytes:
      return "bytes such as 4096, 64K, 1M or 1G";
    case Type::time_ns:
      return "a whole number with a unit of time, such as 500ns, 3us, 2ms, 60s, 5min or 1h";
    case Type::flag:
      return "0 or 1";
  }
  return "";
}

// `value` as a user may write it in the variable.
std::string written(Type type, std::uint64_t value) {
  using Unit = std::pair<const char*, std::uint64_t>;
  static constexpr Unit kBytes[] = {{"G", kGi}, {"M", kMi}, {"K", kKi}};
  static constexpr Unit kTimes[] = {{"s", kSecondNs}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};
  std::span<const Unit> units;
  if (type == Type::bytes) units = kBytes;
  if (type == Type::time_ns) units = kTimes;
  for (const auto& [unit, factor] : units) {
    if (value != 0 && value % factor == 0) return std::to_string(value / factor) + unit;
  }
  return std::to_string(value);
}

Status reject(const Variable& variable, const std::string& text) {
  return fail(HEDDLE_ERR_CONFIG, "%s=\"%s\" is outside its range, %s (default %s: %s)", variable.name, text.c_str(),
              range_text(variable).c_str(), variable.default_value, variable.help);
}

}  // namespace

std::span<const Variable> variables() {
  return kVariables;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
      {"", 1}, {"K", 1ULL << 10}, {"k", 1ULL << 10}, {"M", 1ULL << 20}, {"G", 1ULL << 30}, {"T", 1ULL << 40}};
  return with_unit(text, kUnits);
}

std::optional<std::uint64_t> parse_time_ns(std::string_view text) {
  static constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {
      {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", kSecondNs}, {"min", 60 * kSecondNs}, {"h", 3600 * kSecondNs}};
  if (text == "0")
    // every other number needs a unit: some would read a bare number as seconds, others as
    // nanoseconds
    return 0;
  return with_unit(text, kUnits);
}

std::string range_text(const Variable& variable) {
  const Range& range = variable.range;
  if (range.everything()) return "";
  std::string text = (range.or_zero ? "0 or " : "") + written(variable.type, range.least);
  text +=
      range.most == kAnyNumber ? std::string(" and more") : std::string("-").append(written(variable.type, range.most));
  if (range.unit != 1) text += ", a multiple of " + std::to_string(range.unit);
  return text;
}

// Gives the parts of row `whole` their values: those that its text names, else their defaults.
Status Config::read_parts(std::size_t whole) {
  const Variable& variable = kVariables[whole];
  std::size_t end = whole + 1;
  std::string names;
  for (; end < kVariables.size() && kVariables[end].whole() == variable.name; ++end) {
    text_[end] = kVariables[end].default_value;
    (names += names.empty() ? "" : ", ") += std::string(kVariables[end].name).substr(std::strlen(variable.name) + 1);
  }
  if (end == whole + 1) return HEDDLE_DONE;  // it has none
  const std::string all = text_[whole];
  if (all.empty() && variable.type == Type::text) return HEDDLE_DONE;
  text_[whole] = variable.default_value;
  std::vector<std::size_t> given;
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t comma = std::min(all.find(',', at), all.size());
    const std::string item = all.substr(at, comma - at);
    at = comma + 1;
    const std::size_t equals = item.find('=');
    const std::string name = std::string(variable.name) + "." + item.substr(0, equals);
    std::size_t row = whole + 1;
    while (row < end && name != kVariables[row].name) ++row;
    if (equals == std::string::npos && variable.type != Type::text) row = whole;  // its own value
    if (row == end || (row != whole && equals == std::string::npos)) {
      return fail(HEDDLE_ERR_CONFIG, "%s=\"%s\": \"%s\" is none of its parts, %s (%s)", variable.name, all.c_str(),
                  item.c_str(), names.c_str(), variable.help);
    }
    if (std::find(given.begin(), given.end(), row) != given.end())
      return fail(HEDDLE_ERR_CONFIG, "%s=\"%s\" says \"%s\" twice", variable.name, all.c_str(), item.c_str());
    given.push_back(row);
    text_[row] = row == whole ? item : item.substr(equals + 1);
    set_[row] = true;
  }
  return HEDDLE_DONE;
}

Result<Config> Config::read(const Overrides& overrides) {
  Config config;
  for (std::size_t i = 0; i < kVariables.size(); ++i) {
    const Variable& variable = kVariables[i];
    if (!variable.is_part()) {
      const char* set = std::getenv(variable.name);
      const auto it = overrides.find(variable.name);
      config.set_[i] = set != nullptr || it != overrides.end();
      config.text_[i] = it != overrides.end() ? it->second : set != nullptr ? set : variable.default_value;
      // its parts come next, and are read next
      if (const Status status = config.read_parts(i); status != HEDDLE_DONE) return status;
    }
    const auto value = parse(variable.type, config.text_[i]);
    if (!value) {
      return fail(HEDDLE_ERR_CONFIG, "%s=\"%s\" is not %s (default %s: %s)", variable.name, config.text_[i].c_str(),
                  accepted(variable.type), variable.default_value, variable.help);
    }
    if (!variable.range.has(*value)) return reject(variable, config.text_[i]);
    config.number_[i] = *value;
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with("HEDDLE_")) continue;
    const bool known =
        std::any_of(kVariables.begin(), kVariables.end(), [&](auto& v) { return name == v.name && !v.is_part(); }) ||
        std::find(kInternalNames.begin(), kInternalNames.end(), name) != kInternalNames.end();
    if (!known) config.unknown_.emplace_back(name);
  }
  return config;
}

namespace {

// longer words are no misspelt names, and are not worth the time
constexpr std::size_t kLongest = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return out;
}

// Letters inserted, left out, changed, or swapped with their neighbours.
std::size_t distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<std::size_t>> steps(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const std::size_t changed = from[i - 1] == to[j - 1] ? 0 : 1;
      std::size_t least = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1, steps[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        least = std::min(least, steps[i - 2][j - 2] + 1);
      }
      steps[i][j] = least;
    }
  }
  return steps[from.size()][to.size()];
}

// The common beginning of all names ("--", "HEDDLE_") does not tell which of them was meant.
std::size_t common_beginning(std::string_view word, const std::vector<std::string_view>& names) {
  std::size_t common = 0;
  const auto agrees = [&](std::string_view name) { return name.size() > common && name[common] == word[common]; };
  while (common < word.size() && std::all_of(names.begin(), names.end(), agrees)) ++common;
  return common;
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names) {
  if (word.size() > kLongest) return "";
  const std::size_t common = common_beginning(word, names);
  const std::string wanted = lower(word.substr(common));
  std::string_view best;
  std::string_view begun;
  std::size_t beginners = 0;
  std::size_t least = kLongest;
  for (const std::string_view name : names) {
    const std::string known = lower(name.substr(std::min(common, name.size())));
    if (wanted.size() >= 2 && known.starts_with(wanted)) {
      begun = name;
      ++beginners;
    }
    const std::size_t most = std::max(wanted.size(), known.size()) / 3;
    const std::size_t steps = distance(wanted, known);
    if (steps <= most && steps < least) {
      least = steps;
      best = name;
    }
  }
  return best.empty() && beginners == 1 ? begun : best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string_view name = nearest(word, names);
  return name.empty() ? "" : "; did you mean " + std::string(name) + "?";
}

std::vector<std::string_view> options_in(std::string_view help) {
  std::vector<std::string_view> options;
  for (std::size_t at = help.find("--"); at != std::string_view::npos; at = help.find("--", at)) {
    const std::size_t end = std::min(help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at), help.size());
    if (end > at + 2) options.push_back(help.substr(at, end - at));
    at = end;
  }
  return options;
}

namespace {

// Settings of release 0.2 that have others in their place.
struct Replaced {
  std::string_view name;
  const char* by;
};
constexpr Replaced kReplaced[] = {
    {"HEDDLE_UCX_LIBRARY", "HEDDLE_LIBRARIES=ucx=…"},
    {"HEDDLE_UTOFU_LIBRARY", "HEDDLE_LIBRARIES=utofu=…"},
    {"HEDDLE_UCX_NET_DEVICES", "HEDDLE_NET_DEVICES"},
    {"HEDDLE_UCX_WINDOW_BYTES", "HEDDLE_NETWORK_WINDOW_BYTES"},
    {"HEDDLE_UCX_TIMEOUT", "HEDDLE_NETWORK_TIMEOUT"},
    {"HEDDLE_SHM_BOUNCE_POOL_BYTES", "HEDDLE_SHM_BOUNCE=pool=…"},
    {"HEDDLE_SHM_BOUNCE_CHUNK_BYTES", "HEDDLE_SHM_BOUNCE=chunk=…"},
    {"HEDDLE_SHM_BOUNCE_PATIENCE_NS", "HEDDLE_SHM_BOUNCE=patience=…"},
    {"HEDDLE_REG_CACHE_CHECK_BYTES", "HEDDLE_REG_CACHE=check=…"},
    {"HEDDLE_COLLECTIVE_SEGMENT_BYTES", "HEDDLE_COLLECTIVE_BYTES=segment=…"},
    {"HEDDLE_UTOFU_SESSION_DEPTH", "HEDDLE_UTOFU_SESSIONS=depth=…"},
};

}  // namespace

std::string nearest_variable(std::string_view name) {
  if (const auto* old = std::ranges::find(kReplaced, name, &Replaced::name); old != std::end(kReplaced)) return old->by;
  std::vector<std::string_view> names;
  for (const Variable& variable : variables()) names.emplace_back(variable.name);
  const std::string_view found = nearest(name, names);
  const std::size_t dot = found.find('.');
  if (dot == std::string_view::npos) return std::string(found);
  return std::string(found.substr(0, dot)) + "=" + std::string(found.substr(dot + 1)) + "=…";
}

}  // namespace heddle::base
