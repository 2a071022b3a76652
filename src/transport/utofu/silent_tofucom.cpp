// The emulator, but a machine in which one VCQ can fall silent: what is asked of it then is taken, and nothing is ever heard of it.
#include <utofu.h>
#include <utofu_profile.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace {
std::atomic<utofu_vcq_id_t> silent{0};  // 0: none
}

extern "C" {

void silent_tofucom_set(utofu_vcq_id_t vcq);
void silent_tofucom_set(utofu_vcq_id_t vcq) {
  silent = vcq;
}

int utofu_get(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t bytes,
              std::uint64_t edata, unsigned long flags, void* tag) {
  return silent == peer ? UTOFU_SUCCESS : putofu_get(vcq, peer, local, remote, bytes, edata, flags, tag);
}

int utofu_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t bytes,
              std::uint64_t edata, unsigned long flags, void* tag) {
  return silent == peer ? UTOFU_SUCCESS : putofu_put(vcq, peer, local, remote, bytes, edata, flags, tag);
}

int utofu_put_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, void* data, utofu_stadd_t remote, std::size_t bytes,
                        std::uint64_t edata, unsigned long flags, void* tag) {
  return silent == peer ? UTOFU_SUCCESS : putofu_put_piggyback(vcq, peer, data, remote, bytes, edata, flags, tag);
}

int utofu_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, enum utofu_armw_op op, std::uint64_t value,
                utofu_stadd_t remote, std::uint64_t edata, unsigned long flags, void* tag) {
  return silent == peer ? UTOFU_SUCCESS : putofu_armw8(vcq, peer, op, value, remote, edata, flags, tag);
}
}
