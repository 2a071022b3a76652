// The emulator, with one VCQ that can fall silent: commands to it are then accepted but never
// answered. Puts of one word can be refused.
#include <utofu.h>
#include <utofu_profile.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace {

std::atomic<utofu_vcq_id_t> silent{0};  // 0: none
std::mutex mutex;
std::set<utofu_vcq_hdl_t> unanswered;    // VCQs with a command that is never answered
std::uint32_t freed = 0;                 // of these
std::atomic<std::uint32_t> refusals{0};  // to come

bool is_silent(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer) {
  if (silent != peer) return false;
  const std::lock_guard lock(mutex);
  unanswered.insert(vcq);
  return true;
}

}  // namespace

extern "C" {

void silent_tofucom_set(utofu_vcq_id_t vcq);
void silent_tofucom_set(utofu_vcq_id_t vcq) {
  silent = vcq;
}

// The next put_piggyback8 are refused, so many of them.
void silent_tofucom_refuse(std::uint32_t count);
void silent_tofucom_refuse(std::uint32_t count) {
  refusals = count;
}

// The number of VCQs that were freed with commands under way, which the real library does not
// allow.
std::uint32_t silent_tofucom_freed();
std::uint32_t silent_tofucom_freed() {
  const std::lock_guard lock(mutex);
  return freed;
}

int utofu_free_vcq(utofu_vcq_hdl_t vcq) {
  {
    const std::lock_guard lock(mutex);
    freed += static_cast<std::uint32_t>(unanswered.erase(vcq));
  }
  return putofu_free_vcq(vcq);
}

int utofu_get(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t bytes,
              std::uint64_t edata, unsigned long flags, void* tag) {
  return is_silent(vcq, peer) ? UTOFU_SUCCESS : putofu_get(vcq, peer, local, remote, bytes, edata, flags, tag);
}

int utofu_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t bytes,
              std::uint64_t edata, unsigned long flags, void* tag) {
  return is_silent(vcq, peer) ? UTOFU_SUCCESS : putofu_put(vcq, peer, local, remote, bytes, edata, flags, tag);
}

int utofu_put_piggyback(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, void* data, utofu_stadd_t remote, std::size_t bytes,
                        std::uint64_t edata, unsigned long flags, void* tag) {
  return is_silent(vcq, peer) ? UTOFU_SUCCESS : putofu_put_piggyback(vcq, peer, data, remote, bytes, edata, flags, tag);
}

int utofu_put_piggyback8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, std::uint64_t data, utofu_stadd_t remote,
                         std::size_t bytes, std::uint64_t edata, unsigned long flags, void* tag) {
  for (std::uint32_t left = refusals; left != 0;) {
    if (refusals.compare_exchange_weak(left, left - 1)) return UTOFU_ERR_OUT_OF_RESOURCE;
  }
  return is_silent(vcq, peer) ? UTOFU_SUCCESS
                              : putofu_put_piggyback8(vcq, peer, data, remote, bytes, edata, flags, tag);
}

int utofu_armw4(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, enum utofu_armw_op op, std::uint32_t value,
                utofu_stadd_t remote, std::uint64_t edata, unsigned long flags, void* tag) {
  return is_silent(vcq, peer) ? UTOFU_SUCCESS : putofu_armw4(vcq, peer, op, value, remote, edata, flags, tag);
}

int utofu_armw8(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, enum utofu_armw_op op, std::uint64_t value,
                utofu_stadd_t remote, std::uint64_t edata, unsigned long flags, void* tag) {
  return is_silent(vcq, peer) ? UTOFU_SUCCESS : putofu_armw8(vcq, peer, op, value, remote, edata, flags, tag);
}
}
