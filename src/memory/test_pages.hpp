// For tests: pages that are stamped with a number, and hardware that remembers which pages it was
// given.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "memory/registration_cache.hpp"

namespace heddle::memory::test {

inline std::uint64_t page_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct Pages {
  std::byte* at;
  std::uint64_t bytes;
};

// Writes a number that no page had before into the first word of each page.
inline Pages stamp(const Pages& pages) {
  static std::atomic<std::uint64_t> last{0};
  for (std::uint64_t at = 0; at < pages.bytes; at += page_bytes()) {
    const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
    std::memcpy(pages.at + at, &number, sizeof number);
  }
  return pages;
}
inline std::uint64_t stamp_of(const std::byte* page) {
  std::uint64_t number = 0;
  std::memcpy(&number, page, sizeof number);
  return number;
}

// New pages, stamped; at these addresses, if given.
inline Pages map_pages(std::uint64_t count, std::byte* at = nullptr) {
  const std::uint64_t bytes = count * page_bytes();
  void* memory = ::mmap(at, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
  if (memory == MAP_FAILED || (at != nullptr && memory != at)) {
    ADD_FAILURE() << "no pages at " << at;
    ::abort();
  }
  return stamp({static_cast<std::byte*>(memory), bytes});
}

// Remembers the stamps of the pages that it was given, as real hardware remembers the pages. One
// thread.
class StampHardware final : public Registrar {
 public:
  base::Status register_memory(std::byte* begin, std::uint64_t bytes, Access, std::uint64_t* handle) override {
    std::vector<std::uint64_t> stamps(bytes / page_bytes());
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      // Not by a load: the owner may unmap a part of the joined range at this moment.
      const auto at = static_cast<off_t>(reinterpret_cast<std::uint64_t>(begin) + i * page_bytes());
      if (::pread(memory_.get(), &stamps[i], sizeof stamps[i], at) != sizeof stamps[i]) return HEDDLE_ERR_RANGE;
    }
    *handle = ++last_;
    known_[last_] = std::move(stamps);
    return HEDDLE_DONE;
  }
  void deregister(std::uint64_t handle) override { EXPECT_EQ(known_.erase(handle), 1u) << "not registered"; }

  [[nodiscard]] std::size_t known() const { return known_.size(); }
  // True: the registration is of the pages that are there now.
  [[nodiscard]] bool fresh(const RegistrationCache::Lease& lease, const Pages& pages) const {
    const auto found = known_.find(lease.handle);
    if (found == known_.end()) return false;
    const std::uint64_t first = lease.offset / page_bytes();
    for (std::uint64_t at = 0; at * page_bytes() < pages.bytes; ++at) {
      if (first + at >= found->second.size()) return false;
      if (found->second[first + at] != stamp_of(pages.at + at * page_bytes())) return false;
    }
    return true;
  }

 private:
  std::map<std::uint64_t, std::vector<std::uint64_t>> known_;
  std::uint64_t last_ = 0;
  base::Fd memory_{::open("/proc/self/mem", O_RDONLY | O_CLOEXEC)};
};

}  // namespace heddle::memory::test
