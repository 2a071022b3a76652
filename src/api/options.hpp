// Structures that contain their size. They can grow, while programs built against older or newer
// headers still work.
//
// A smaller structure is an older one: the fields that it lacks get their defaults. A larger
// structure is a newer one: it is accepted if everything that this version does not know is zero,
// since zero means the default there. New fields are appended, and never placed into the padding at
// the end of an earlier version: callers count that padding but need not clear it. No version will
// ever be longer than kMostOptions. A larger size comes from uninitialized memory; the structure is
// then not read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"

namespace heddle::api {

// The sizes of the first versions. They never change.
inline constexpr std::size_t kFirstContextOptions = 40;
inline constexpr std::size_t kFirstWorkerOptions = 16;
inline constexpr std::size_t kFirstWorkerStats = 96;
inline constexpr std::size_t kFirstCounterOptions = 16;
inline constexpr std::size_t kFirstRegionOptions = 16;
inline constexpr std::size_t kMostOptions = 4096;
static_assert(sizeof(heddle_context_options) >= kFirstContextOptions && sizeof(void*) == 8);
static_assert(sizeof(heddle_worker_options) >= kFirstWorkerOptions);
static_assert(sizeof(heddle_worker_stats) >= kFirstWorkerStats);
static_assert(sizeof(heddle_counter_options) >= kFirstCounterOptions);
static_assert(sizeof(heddle_region_options) >= kFirstRegionOptions);

namespace detail {

[[gnu::cold]] inline base::Status too_small(const char* what, std::size_t size, std::size_t first, std::size_t own) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s of size %zu: this version has %zu, the first had %zu; set size = sizeof",
                    what, size, own, first);
}

[[gnu::cold]] inline base::Status too_large(const char* what, std::size_t size, std::size_t own) {
  return base::fail(HEDDLE_ERR_ARGUMENT,
                    "%s of size %zu: this version has %zu, no version has more than %zu; set size = sizeof", what, size,
                    own, kMostOptions);
}

// Structures of pointers and 64-bit numbers: half a field would be read as a whole one.
[[gnu::cold]] inline base::Status cut_off(const char* what, std::size_t size) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s of size %zu: no version of it ends inside a field; set size = sizeof",
                    what, size);
}

}  // namespace detail

// Copies the caller's options over the defaults in *to; to->size becomes this version's size.
// ARGUMENT: `from` is no version of these options, or asks for something that this version does not
// have. `from` may be null: the defaults.
template <class Options>
base::Status read_options(const char* what, const Options* from, std::size_t first, Options* to) {
  if (from == nullptr) return HEDDLE_DONE;
  const std::size_t size = from->size;
  if (size < first) return detail::too_small(what, size, first, sizeof(Options));
  if (size > kMostOptions) return detail::too_large(what, size, sizeof(Options));
  if (size % alignof(Options) != 0) return detail::cut_off(what, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "%s of size %zu: byte %zu is set, which this version (size %zu) does not know; leave newer "
                      "fields zero or use a newer library",
                      what, size, i, sizeof(Options));
  }
  std::memcpy(to, from, std::min(size, sizeof(Options)));
  to->size = sizeof(Options);
  return HEDDLE_DONE;
}

// Copies as much of `from` as fits the caller's structure, and clears fields that only the caller's
// version has; to->size stays the caller's.
template <class Results>
base::Status write_results(const char* what, const Results& from, std::size_t first, Results* to) {
  const std::size_t size = to->size;
  if (size < first) return detail::too_small(what, size, first, sizeof(Results));
  if (size > kMostOptions) return detail::too_large(what, size, sizeof(Results));
  if (size % alignof(Results) != 0) return detail::cut_off(what, size);
  const std::size_t known = std::min(size, sizeof(Results));
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  const auto* source = reinterpret_cast<const unsigned char*>(&from);
  static_assert(offsetof(Results, size) == 0);
  std::memcpy(bytes + sizeof size, source + sizeof size, known - sizeof size);
  std::memset(bytes + known, 0, size - known);
  return HEDDLE_DONE;
}

}  // namespace heddle::api
