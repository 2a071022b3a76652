// All operations of LCW on this backend, in a job of any number of ranks: each talks to each,
// itself included. Everything is done twice, with finalize and initialize between.
#include <set>

#include "support.hpp"

namespace {

using test::filled;
using test::is_filled;
using test::seed_of;
using test::sizes;

test::CountingAllocator g_allocator;
// The number of puts to this rank so far. Puts of a rank that is ahead may arrive early. So the
// count is for the whole program, and is compared where no rank can have begun to put again.
long g_puts = 0;
constexpr lcw::rank_t kAnyRank = -1;

// One message of each size from each rank to each, received in posted or unexpected order.
void exchange(lcw::device_t device, bool unexpected) {
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t ranks = lcw::get_nranks();
  const lcw::comp_t sent = lcw::alloc_cq();
  const lcw::comp_t received = lcw::alloc_cq();
  for (std::size_t s = 0; s < sizes().size(); ++s) {
    const std::size_t bytes = sizes()[s];
    const auto tag = static_cast<lcw::tag_t>(s) + (lcw::get_max_tag(device) - 100);
    std::vector<std::vector<unsigned char>> out(ranks);
    std::vector<std::vector<unsigned char>> in(ranks, std::vector<unsigned char>(bytes));
    const auto post_receives = [&] {
      for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
        test::recv(device, peer, tag, in[peer].data(), static_cast<std::int64_t>(bytes), received, &in[peer]);
      }
    };
    if (!unexpected) post_receives();
    for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
      out[peer] = filled(seed_of(me, peer, s), bytes);
      test::send(device, peer, tag, out[peer].data(), static_cast<std::int64_t>(bytes), sent, &out[peer]);
    }
    if (unexpected) {
      // A barrier after the sends: they are on their way, and mostly here.
      lcw::barrier(device);
      for (int i = 0; i < 100; ++i) lcw::do_progress(device);
      post_receives();
    }
    for (lcw::rank_t i = 0; i < 2 * ranks; ++i) {
      const bool send = i < ranks;
      const lcw::request_t request = test::wait(device, send ? sent : received);
      REQUIRE(request.op == (send ? lcw::op_t::SEND : lcw::op_t::RECV));
      REQUIRE(request.device == device && request.tag == tag);
      REQUIRE(request.length == static_cast<std::int64_t>(bytes));
      REQUIRE(request.rank >= 0 && request.rank < ranks);
      auto& memory = (send ? out : in)[request.rank];
      REQUIRE(request.buffer == memory.data() && request.user_context == &memory);
      if (!send) REQUIRE(is_filled(memory.data(), seed_of(request.rank, me, s), bytes));
    }
  }
  lcw::request_t none{};
  REQUIRE(!lcw::poll_cq(sent, &none) && !lcw::poll_cq(received, &none));
  lcw::free_cq(sent);
  lcw::free_cq(received);
}

// A receive may be longer than the message, and may be from any rank.
void shorter_and_from_any(lcw::device_t device) {
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t ranks = lcw::get_nranks();
  const lcw::comp_t queue = lcw::alloc_cq();
  std::vector<unsigned char> in(100);
  auto out = filled(seed_of(me, 0, 77), static_cast<std::size_t>(me) + 1);
  test::send(device, 0, 77, out.data(), me + 1, queue);
  std::set<lcw::rank_t> seen;
  if (me == 0) {
    for (lcw::rank_t i = 0; i < ranks; ++i) {
      test::recv(device, kAnyRank, 77, in.data(), 100, queue);
      lcw::request_t request = test::wait(device, queue);
      while (request.op == lcw::op_t::SEND) request = test::wait(device, queue);
      REQUIRE(request.length == request.rank + 1);
      REQUIRE(is_filled(in.data(), seed_of(request.rank, 0, 77), static_cast<std::size_t>(request.length)));
      REQUIRE(seen.insert(request.rank).second);
    }
  }
  lcw::barrier(device);
  lcw::request_t rest{};
  while (lcw::poll_cq(queue, &rest)) REQUIRE(rest.op == lcw::op_t::SEND);
  lcw::free_cq(queue);
}

void puts(lcw::device_t device, lcw::comp_t arrived) {
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t ranks = lcw::get_nranks();
  const lcw::comp_t done = lcw::alloc_cq();
  g_puts += static_cast<long>(sizes().size()) * ranks;
  for (std::size_t s = 0; s < sizes().size(); ++s) {
    const std::size_t bytes = sizes()[s];
    std::vector<std::vector<unsigned char>> out(ranks);
    for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
      out[peer] = filled(seed_of(me, peer, s), bytes);
      test::put(device, peer, out[peer].data(), static_cast<std::int64_t>(bytes), done, &out[peer]);
    }
    for (lcw::rank_t i = 0; i < ranks; ++i) {
      const lcw::request_t request = test::wait(device, done);
      REQUIRE(request.op == lcw::op_t::PUT && request.device == device);
      REQUIRE(request.buffer == out[request.rank].data() && request.user_context == &out[request.rank]);
      REQUIRE(request.length == static_cast<std::int64_t>(bytes));
    }
    for (lcw::rank_t i = 0; i < ranks; ++i) {
      const lcw::request_t request = test::wait(device, arrived);
      REQUIRE(request.op == lcw::op_t::PUT_SIGNAL && request.user_context == nullptr);
      REQUIRE(request.length == static_cast<std::int64_t>(bytes));
      REQUIRE(is_filled(request.buffer, seed_of(request.rank, me, s), bytes));
      g_allocator.deallocate(request.buffer);
    }
    lcw::barrier(device);  // sizes do not mix
  }
  REQUIRE(g_allocator.all == g_puts && g_allocator.open == 0);
  lcw::free_cq(done);
}

// ---- handlers ----------------------------------------------------------------------------------

lcw::device_t g_device;
lcw::comp_t g_counted;
std::atomic<long> g_sent;
std::atomic<long> g_received;
std::atomic<long> g_arrived;
std::atomic<bool> g_second_ran;

void on_counted(lcw::request_t request) {
  REQUIRE(!test::t_posting);
  if (request.op == lcw::op_t::SEND || request.op == lcw::op_t::PUT) ++g_sent;
  if (request.op == lcw::op_t::RECV) ++g_received;
  if (request.op == lcw::op_t::PUT_SIGNAL) {
    ++g_arrived;
    g_allocator.deallocate(request.buffer);
  }
}

// Posts from inside, and makes progress until another handler has run.
void on_nested(lcw::request_t request) {
  REQUIRE(!test::t_posting);
  if (request.user_context == nullptr) {
    g_second_ran = true;
    return;
  }
  static char byte = 0;
  static char in = 0;
  const long before = g_received;
  test::recv(g_device, lcw::get_rank(), 5, &in, 1, g_counted);
  test::send(g_device, lcw::get_rank(), 5, &byte, 1, g_counted);
  test::progress_until(g_device, [&] { return g_received > before && g_second_ran.load(); });
  g_received -= 1;
  g_sent -= 1;
}

void handlers() {
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t ranks = lcw::get_nranks();
  g_counted = lcw::alloc_handler(on_counted);
  const lcw::comp_t nested = lcw::alloc_handler(on_nested);
  g_device = lcw::alloc_device(8192, g_counted);
  g_sent = g_received = g_arrived = 0;
  g_second_ran = false;
  lcw::barrier(g_device);
  std::vector<std::vector<unsigned char>> in;
  std::vector<std::vector<unsigned char>> out;
  long posted = 0;
  for (const std::size_t bytes : sizes()) {
    for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
      in.emplace_back(bytes);
      out.push_back(filled(seed_of(me, peer, bytes), bytes));
      test::recv(g_device, peer, static_cast<lcw::tag_t>(bytes), in.back().data(), static_cast<std::int64_t>(bytes),
                 g_counted);
      test::send(g_device, peer, static_cast<lcw::tag_t>(bytes), out.back().data(), static_cast<std::int64_t>(bytes),
                 g_counted);
      test::put(g_device, peer, out.back().data(), static_cast<std::int64_t>(bytes), g_counted);
      ++posted;
    }
  }
  test::progress_until(g_device, [&] { return g_sent == 2 * posted && g_received == posted && g_arrived == posted; });
  g_puts += posted;
  std::size_t at = 0;
  for (const std::size_t bytes : sizes()) {
    for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
      REQUIRE(is_filled(in[at++].data(), seed_of(peer, me, bytes), bytes));
    }
  }
  // Two completions wait; the handler of the first needs that of the second.
  char byte = 0;
  test::send(g_device, me, 6, &byte, 1, nested, &byte);
  test::send(g_device, me, 6, &byte, 1, nested, nullptr);
  char ins[2];
  test::progress_until(g_device, [] { return g_second_ran.load(); });
  test::recv(g_device, me, 6, &ins[0], 1, g_counted);
  test::recv(g_device, me, 6, &ins[1], 1, g_counted);
  test::progress_until(g_device, [&] { return g_received == posted + 2; });
  lcw::barrier(g_device);
  lcw::free_device(g_device);
  lcw::free_handler(nested);
  lcw::free_handler(g_counted);
  REQUIRE(g_allocator.open == 0);
}

// More completions than a queue's ring has place for, and nobody polls meanwhile.
void many_unpolled(lcw::device_t device) {
  constexpr long kMany = 5000;
  const lcw::rank_t peer = (lcw::get_rank() + 1) % lcw::get_nranks();
  const lcw::rank_t before = (lcw::get_rank() + lcw::get_nranks() - 1) % lcw::get_nranks();
  const lcw::comp_t queue = lcw::alloc_cq();
  std::vector<long> in(kMany);
  std::vector<long> out(kMany);
  for (long i = 0; i < kMany; ++i) {
    out[i] = i;
    test::recv(device, before, i, &in[i], sizeof(long), queue, &in[i]);
    test::send(device, peer, i, &out[i], sizeof(long), queue, &out[i]);
  }
  lcw::barrier(device);
  std::set<void*> seen;
  while (seen.size() < 2 * kMany) REQUIRE(seen.insert(test::wait(device, queue).user_context).second);
  for (long i = 0; i < kMany; ++i) REQUIRE(in[i] == i);
  lcw::free_cq(queue);
}

// A device with receives that nobody answers can be freed, and its buffers with it.
void freed_with_receives() {
  const lcw::comp_t queue = lcw::alloc_cq();
  const lcw::device_t device = lcw::alloc_device();
  std::vector<char> memory(1 << 16);
  for (int i = 0; i < 100; ++i) test::recv(device, 0, i, memory.data(), 1 << 16, queue);
  lcw::free_device(device);
  lcw::request_t none{};
  REQUIRE(!lcw::poll_cq(queue, &none));
  lcw::free_cq(queue);
}

void everything() {
  REQUIRE(lcw::is_initialized());
  const lcw::comp_t arrived = lcw::alloc_cq();
  const lcw::device_t device = lcw::alloc_device(8192, arrived);
  const lcw::device_t other = lcw::alloc_device();
  lcw::set_custom_allocator(&g_allocator);
  lcw::barrier(device);
  REQUIRE(lcw::get_max_tag(device) >= 32767);
  for (int i = 0; i < 1000; ++i) lcw::barrier(i % 2 == 0 ? device : other);
  exchange(device, false);
  exchange(device, true);
  exchange(other, true);
  shorter_and_from_any(other);
  puts(device, arrived);
  many_unpolled(device);
  lcw::barrier(device);
  handlers();
  freed_with_receives();
  lcw::barrier(device);
  lcw::free_device(other);
  lcw::free_device(device);
  lcw::free_cq(arrived);
}

}  // namespace

int main(int /*argc*/, char** /*argv*/) {
  REQUIRE(!lcw::is_initialized());
  lcw::initialize();
  const lcw::rank_t rank = lcw::get_rank();
  const lcw::rank_t ranks = lcw::get_nranks();
  everything();
  lcw::finalize();
  REQUIRE(!lcw::is_initialized());
  // Ranks may have opened different numbers of devices.
  lcw::initialize();
  REQUIRE(lcw::get_rank() == rank && lcw::get_nranks() == ranks);
  for (lcw::rank_t i = 0; i < rank; ++i) lcw::alloc_device();
  lcw::finalize();
  lcw::initialize();
  everything();
  lcw::finalize();
  if (rank == 0) std::printf("operations: %lld ranks, all is well\n", static_cast<long long>(ranks));
  return 0;
}
