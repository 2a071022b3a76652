// LCW's performance counters: each completion is counted once, by its kind and with all others,
// whether a queue or a handler learns of it.
#include <gtest/gtest.h>

#include <array>

#include <lcwi.hpp>

#include "support.hpp"

namespace heddle::for_lcw::counters_test {
namespace {

test::CountingAllocator g_allocator;
int g_handled = 0;

void on_completion(::lcw::request_t request) {
  ++g_handled;
  if (request.op == ::lcw::op_t::PUT_SIGNAL) g_allocator.deallocate(request.buffer);
}

TEST(LcwCounters, EachCompletionOnceByItsKind) {
  namespace pcounter = ::lcw::pcounter;
  ::lcw::initialize();
  ::lcw::set_custom_allocator(&g_allocator);
  const ::lcw::comp_t handler = ::lcw::alloc_handler(on_completion);
  const ::lcw::comp_t queue = ::lcw::alloc_cq();
  const ::lcw::device_t device = ::lcw::alloc_device(8192, handler);
  const ::lcw::rank_t me = ::lcw::get_rank();
  std::array<char, 100> out{};
  std::array<char, 100> in{};
  for (int i = 0; i < 3; ++i) {
    test::recv(device, me, i, in.data(), 100, handler);
    test::send(device, me, i, out.data(), 100, queue);
  }
  for (int i = 0; i < 2; ++i) test::put(device, me, out.data(), 100, queue);
  for (int i = 0; i < 3 + 2; ++i) test::wait(device, queue);
  test::progress_until(device, [] { return g_handled == 3 + 2; });
  EXPECT_EQ(*pcounter::send_end, 3);
  EXPECT_EQ(*pcounter::recv_end, 3);
  EXPECT_EQ(*pcounter::put_end, 2);
  EXPECT_EQ(*pcounter::put_signal, 2);
  EXPECT_EQ(*pcounter::comp_produce, 3 + 3 + 2 + 2);
  EXPECT_EQ(g_allocator.open, 0);
  ::lcw::free_device(device);
  ::lcw::free_cq(queue);
  ::lcw::free_handler(handler);
  ::lcw::finalize();
}

}  // namespace
}  // namespace heddle::for_lcw::counters_test
