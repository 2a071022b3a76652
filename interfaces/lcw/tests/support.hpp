// Shared parts of the backend's tests. They use LCW's public header alone, so they run on every
// backend of LCW.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <lcw.hpp>

namespace test {

inline void require(bool true_, const char* what, int line) {
  if (true_) return;
  std::fprintf(stderr, "rank %lld: line %d: %s\n",
               lcw::is_initialized() ? static_cast<long long>(lcw::get_rank()) : -1LL, line, what);
  std::abort();
}

// Whether this thread is inside a call that posts: no handler may run there.
inline thread_local bool t_posting = false;

class Posting {
 public:
  Posting() { t_posting = true; }
  ~Posting() { t_posting = false; }
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;
};

// Repeats the call until it is accepted, and makes progress in between.
template <typename Call>
void post(lcw::device_t device, Call call) {
  while (true) {
    {
      const Posting posting;
      if (call()) return;
    }
    lcw::do_progress(device);
  }
}
inline void send(lcw::device_t device, lcw::rank_t rank, lcw::tag_t tag, void* data, std::int64_t bytes,
                 lcw::comp_t completion, void* context = nullptr) {
  post(device, [&] { return lcw::send(device, rank, tag, data, bytes, completion, context); });
}
inline void recv(lcw::device_t device, lcw::rank_t rank, lcw::tag_t tag, void* data, std::int64_t bytes,
                 lcw::comp_t completion, void* context = nullptr) {
  post(device, [&] { return lcw::recv(device, rank, tag, data, bytes, completion, context); });
}
inline void put(lcw::device_t device, lcw::rank_t rank, void* data, std::int64_t bytes, lcw::comp_t completion,
                void* context = nullptr) {
  post(device, [&] { return lcw::put(device, rank, data, bytes, completion, context); });
}
inline lcw::request_t wait(lcw::device_t device, lcw::comp_t queue) {
  lcw::request_t request{};
  while (!lcw::poll_cq(queue, &request)) lcw::do_progress(device);
  return request;
}
template <typename Condition>
void progress_until(lcw::device_t device, Condition condition) {
  while (!condition()) lcw::do_progress(device);
}

// Bytes that depend on the sender, the receiver and the message.
inline unsigned char byte_at(std::uint64_t seed, std::size_t i) {
  return static_cast<unsigned char>(seed * 131 + i * 7 + (i >> 8));
}
inline std::vector<unsigned char> filled(std::uint64_t seed, std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_at(seed, i);
  return data;
}
inline bool is_filled(const void* data, std::uint64_t seed, std::size_t bytes) {
  const auto* bytes_of = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (bytes_of[i] != byte_at(seed, i)) return false;
  }
  return true;
}
inline std::uint64_t seed_of(lcw::rank_t from, lcw::rank_t to, std::uint64_t what) {
  return static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) * 31 + what;
}

inline const std::vector<std::size_t>& sizes() {
  static const std::vector<std::size_t> all = {0,    1,    8,    55,    56,    57,     64,      1000,         2048,
                                               4096, 8192, 8193, 16384, 65536, 100003, 1 << 20, (4 << 20) + 3};
  return all;
}

// Memory for puts that counts what was taken and given back.
struct CountingAllocator : lcw::allocator_base_t {
  std::atomic<long> open{0};
  std::atomic<long> all{0};
  void* allocate(std::size_t bytes) override {
    ++open;
    ++all;
    return std::malloc(bytes != 0 ? bytes : 1);
  }
  void deallocate(void* memory) override {
    --open;
    std::free(memory);
  }
};

}  // namespace test

#define REQUIRE(condition) ::test::require((condition), #condition, __LINE__)
