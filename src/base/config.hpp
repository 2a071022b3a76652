// Settings, names near to an unknown one, and what the parts of a context share (Environment).
//
// Every HEDDLE_* variable is in one table: the code, `heddle info`, the docs and the check for
// unknown names read it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace heddle::base {

enum class Type { text, count, bytes, time_ns, flag };

// One entry per row of kVariables, in the same order: each row names its Var, and config.cpp checks
// that at compile time.
enum class Var : std::size_t {
  transport,
  transports,
  node_ranks,
  bootstrap,
  sharing,
  progress,
  max_workers,
  meet_ranks,
  worker_operations,
  am_max_bytes,
  am_reassembly_bytes,
  am_eager_bytes,
  tag_credit_bytes,
  tag_eager_bytes,
  am_user_bytes,
  small_offload,
  shm_ring_bytes,
  shm_direct,
  shm_cma,
  shm_bounce,
  shm_bounce_pool_bytes,
  shm_bounce_chunk_bytes,
  shm_bounce_patience_ns,
  shm_membarrier,
  reg_cache,
  reg_cache_entries,
  reg_cache_bytes,
  reg_cache_check_bytes,
  reg_cache_watch,
  collective_bytes,
  collective_segment_bytes,
  collective_algorithms,
  collective_table,
  libraries,
  library_ucx,
  library_ofi,
  library_verbs,
  library_utofu,
  network_devices,
  network_window_bytes,
  network_timeout,
  utofu_exclusive,
  utofu_mrq_depth,
  utofu_sessions,
  utofu_session_depth,
  utofu_spread_bytes,
  utofu_gates,
  utofu_single_thread,
  ucx_tls,
  ofi_provider,
  ofi_domains,
  verbs_stripe_bytes,
  verbs_gid_index,
  fault,
  fault_seed,
  fault_delay,
  fault_reorder,
  fault_again,
  fault_latency,
  log,
  stats,
  trace,
  trace_bytes,
  probes,
  hang_seconds,
  close_timeout,
  shmem_check,
  mpi_no_any_tag,
  kCount
};

// The values that a number may have: from least to most, and a multiple of `unit`.
struct Range {
  std::uint64_t least = 0;
  std::uint64_t most = ~std::uint64_t{0};
  std::uint64_t unit = 1;
  bool or_zero = false;  // 0 too: Heddle chooses
  [[nodiscard]] bool has(std::uint64_t value) const {
    return (or_zero && value == 0) || (value >= least && value <= most && value % unit == 0);
  }
  [[nodiscard]] bool everything() const { return least == 0 && most == ~std::uint64_t{0} && unit == 1; }
};

// A row whose name has a dot is a part of the variable before the dot, which is written as a list:
// HEDDLE_FAULT=again=30,delay=5 gives HEDDLE_FAULT.again and HEDDLE_FAULT.delay their values. What
// has no "=" is the value of the variable itself.
struct Variable {
  Var var;
  const char* name;
  Type type;
  const char* default_value;
  const char* help;
  Range range{};  // of count, bytes and time

  [[nodiscard]] bool is_part() const { return std::string_view(name).find('.') != std::string_view::npos; }
  // Of which it is a part; empty: of none.
  [[nodiscard]] std::string_view whole() const {
    return is_part() ? std::string_view(name).substr(0, std::string_view(name).find('.')) : std::string_view();
  }
};

// All variables a user may set, for printing.
std::span<const Variable> variables();

// Names that begin with HEDDLE_ but are not settings: the launcher sets them for the processes it
// starts.
inline constexpr std::array<std::string_view, 4> kInternalNames = {"HEDDLE_LOCAL_FD", "HEDDLE_LOCAL_RANK",
                                                                   "HEDDLE_LOCAL_SIZE", "HEDDLE_THREADS"};

// The values in force for one context: defaults, then the environment, then explicit overrides.
// Immutable once read.
class Config {
 public:
  using Overrides = std::map<std::string, std::string>;

  // Reads and parses everything. A value that cannot be parsed or is out of its range:
  // HEDDLE_ERR_CONFIG, with a message that names variable, value and what is accepted. Unknown
  // HEDDLE_* names are listed in unknown().
  static Result<Config> read(const Overrides& overrides = {});

  [[nodiscard]] const std::string& text(Var var) const { return text_[index(var)]; }
  // count, bytes, time_ns
  [[nodiscard]] std::uint64_t number(Var var) const { return number_[index(var)]; }
  [[nodiscard]] bool flag(Var var) const { return number_[index(var)] != 0; }
  // True: the value comes from the environment or an override, or, of a variable with parts, that
  // of one of them.
  [[nodiscard]] bool is_set(Var var) const { return set_[index(var)]; }
  [[nodiscard]] std::span<const std::string> unknown() const { return unknown_; }

 private:
  static constexpr std::size_t kCount = static_cast<std::size_t>(Var::kCount);
  static std::size_t index(Var var) { return static_cast<std::size_t>(var); }
  Status read_parts(std::size_t whole);
  std::array<std::string, kCount> text_;
  std::array<std::uint64_t, kCount> number_{};
  std::array<bool, kCount> set_{};
  std::vector<std::string> unknown_;
};

// "64K-1G, a multiple of 64"; empty: every number is accepted.
std::string range_text(const Variable& variable);

// Parses "64K", "1M", "4096", "1G" (binary multiples). Empty optional: not a size.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// Parses "500ns", "3us", "2ms", "1s", "5min", "1h"; a number without a unit is accepted only if it
// is 0.
std::optional<std::uint64_t> parse_time_ns(std::string_view text);

// For messages about an unknown name: which known name was probably meant.

// The name that `word` is a misspelling of: the one that needs the fewest letters inserted, left
// out, changed or swapped with their neighbours, at most one letter in three; otherwise the only
// name that begins with `word`. Case does not count. Empty: no name is near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names);

// "; did you mean NAME?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

// The options (--word) that a help text names, as candidates for did_you_mean().
std::vector<std::string_view> options_in(std::string_view help);

// For a `name` that is no setting: the setting that is in its place now, or of which it is a
// misspelling, as a user writes it (a part: HEDDLE_FAULT=delay=…); empty: none is near.
std::string nearest_variable(std::string_view name);

// The state that all parts of a context share: settings, time, log. It is passed down by reference;
// there are no globals.

struct Environment {
  Config config;
  Log log;
  Clock* clock = nullptr;  // not owned; outlives the context
};

}  // namespace heddle::base
