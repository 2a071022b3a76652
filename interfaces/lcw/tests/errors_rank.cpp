// One wrong call, or a rank that dies: the program must end with a message. The argument selects
// the case, and the caller looks for the message. Exit 0: nothing was noticed, so the test has
// failed.
#include <csignal>
#include <cstring>

#include "support.hpp"

namespace {

char g_byte[16];

void one_wrong(const char* what, lcw::device_t device, lcw::comp_t queue) {
  const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };
  if (is("tag")) lcw::send(device, 0, -1, g_byte, 1, queue, nullptr);
  if (is("large-tag")) lcw::recv(device, 0, INT64_MAX, g_byte, 1, queue, nullptr);
  if (is("rank")) lcw::put(device, lcw::get_nranks(), g_byte, 1, queue, nullptr);
  if (is("send-to-any")) lcw::send(device, -1, 0, g_byte, 1, queue, nullptr);
  if (is("length")) lcw::recv(device, 0, 0, g_byte, -1, queue, nullptr);
  if (is("put-length")) lcw::alloc_device(-1);
  if (is("large-put")) {
    std::vector<char> large((std::size_t{256} << 20) + 1);  // HEDDLE_AM_MAX_BYTES and one more
    lcw::put(device, 0, large.data(), static_cast<std::int64_t>(large.size()), queue, nullptr);
  }
  if (is("devices")) {
    for (int i = 0; i < 64; ++i) lcw::alloc_device();  // HEDDLE_MAX_WORKERS; one is open
  }
  if (is("no-handler")) lcw::alloc_handler(nullptr);
  if (is("no-allocator")) lcw::set_custom_allocator(nullptr);
  if (is("free-twice")) {
    lcw::free_device(device);
    lcw::free_device(device);
  }
  if (is("put-without-put-comp")) {
    test::put(device, lcw::get_rank(), g_byte, 1, queue);
    test::wait(device, queue);
    for (int i = 0; i < 1000; ++i) lcw::do_progress(device);
  }
  if (is("truncated")) {
    test::send(device, lcw::get_rank(), 0, g_byte, 9, queue);
    test::recv(device, lcw::get_rank(), 0, g_byte, 4, queue);
    for (int i = 0; i < 2; ++i) test::wait(device, queue);
  }
  if (is("dead-peer-recv") || is("dead-peer-barrier")) {
    if (lcw::get_rank() == 1) std::raise(SIGKILL);
    if (is("dead-peer-barrier")) lcw::barrier(device);
    test::recv(device, 1, 0, g_byte, 4, queue);
    test::wait(device, queue);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lcw::initialize();
  const lcw::comp_t queue = lcw::alloc_cq();
  const lcw::device_t device = lcw::alloc_device();
  lcw::barrier(device);
  one_wrong(argv[1], device, queue);
  std::fprintf(stderr, "errors: %s was not noticed\n", argv[1]);
  return 0;
}
