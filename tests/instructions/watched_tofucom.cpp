// The emulator, with queues of notices that can be read from outside: so a program that counts
// instructions waits for the NIC without counting its polls.
#include <utofu.h>
#include <utofu_profile.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace {

std::mutex mutex;
std::array<utofu_vcq_hdl_t, 512> handles;
std::atomic<std::size_t> count{0};

}  // namespace

extern "C" {

// Notices that nobody has polled, of all VCQs that were ever made. Nobody is in a call on one of
// them meanwhile.
std::size_t watched_unread();
std::size_t watched_unread() {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t unread = 0;
    if (putofu_query_num_unread_mrq(handles[i], &unread) == UTOFU_SUCCESS) sum += unread;
  }
  return sum;
}

int utofu_create_vcq(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* handle) {
  const int code = putofu_create_vcq(tni, flags, handle);
  const std::lock_guard lock(mutex);
  if (code == UTOFU_SUCCESS && count < handles.size()) handles[count++] = *handle;
  return code;
}
}
