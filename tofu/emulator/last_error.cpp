// No header of the vendor declares utofu_get_last_error. Libraries that call it declare it
// themselves, with a buffer of 1024 bytes for a text (as const char* or as char*), so utofu.h does
// not declare it either.
#include "tofu/emulator/last_error.hpp"

#include <utofu.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace tofu_emulator {
namespace {

struct Meaning {
  int code;
  const char* name;
  const char* text;
};

#define MEANING(name, text) {UTOFU_##name, "UTOFU_" #name, text}
constexpr Meaning kMeanings[] = {
    MEANING(SUCCESS, "no call of this thread has failed"),
    MEANING(ERR_NOT_PROCESSED, "it was not processed"),
    MEANING(ERR_USED, "what was asked for by name is taken"),
    MEANING(ERR_FULL, "none is left"),
    MEANING(ERR_NOT_AVAILABLE, "none of this kind is left now"),
    MEANING(ERR_NOT_SUPPORTED, "there is no such thing here"),
    MEANING(ERR_TCQ_OTHER, "the command failed on this side"),
    MEANING(ERR_TCQ_DESC, "the command is none"),
    MEANING(ERR_TCQ_MEMORY, "the local memory cannot be used so"),
    MEANING(ERR_TCQ_STADD, "nothing is registered at the local steering address"),
    MEANING(ERR_TCQ_LENGTH, "the length is beyond the local memory, or edata has more than a byte"),
    MEANING(ERR_MRQ_OTHER, "the command failed on the other side"),
    MEANING(ERR_MRQ_PEER, "the remote VCQ is no more"),
    MEANING(ERR_MRQ_LCL_MEMORY, "the answer found local memory that cannot be written"),
    MEANING(ERR_MRQ_RMT_MEMORY, "the remote memory cannot be used so"),
    MEANING(ERR_MRQ_LCL_STADD, "the answer found nothing registered at the local steering address"),
    MEANING(ERR_MRQ_RMT_STADD, "nothing is registered at the remote steering address"),
    MEANING(ERR_MRQ_LCL_LENGTH, "the answer is longer than the local memory"),
    MEANING(ERR_MRQ_RMT_LENGTH, "the length is beyond the remote memory"),
    MEANING(ERR_BARRIER_OTHER, "the barrier or reduction failed"),
    MEANING(ERR_BARRIER_MISMATCH, "the participants of a barrier or reduction disagree"),
    MEANING(ERR_INVALID_ARG, "an argument is wrong"),
    MEANING(ERR_INVALID_POINTER, "a pointer is wrong"),
    MEANING(ERR_INVALID_FLAGS, "a flag is wrong"),
    MEANING(ERR_INVALID_COORDS, "a node's coordinates are wrong"),
    MEANING(ERR_INVALID_PATH, "the coordinates of a path is wrong"),
    MEANING(ERR_INVALID_TNI_ID, "a TNI is wrong"),
    MEANING(ERR_INVALID_CQ_ID, "a CQ is wrong"),
    MEANING(ERR_INVALID_BG_ID, "a gate's number is wrong"),
    MEANING(ERR_INVALID_CMP_ID, "a component id is wrong"),
    MEANING(ERR_INVALID_VCQ_HDL, "the handle of a VCQ is wrong"),
    MEANING(ERR_INVALID_VCQ_ID, "the id of a VCQ is wrong"),
    MEANING(ERR_INVALID_VBG_ID, "the id of a gate is wrong"),
    MEANING(ERR_INVALID_PATH_ID, "the id of a path is wrong"),
    MEANING(ERR_INVALID_STADD, "a steering address is wrong"),
    MEANING(ERR_INVALID_ADDRESS, "an address in memory is wrong"),
    MEANING(ERR_INVALID_SIZE, "a size or length is wrong"),
    MEANING(ERR_INVALID_STAG, "a stag is wrong"),
    MEANING(ERR_INVALID_EDATA, "the edata is wrong"),
    MEANING(ERR_INVALID_NUMBER, "a number of things is wrong"),
    MEANING(ERR_INVALID_OP, "an operation is wrong"),
    MEANING(ERR_INVALID_DESC, "a descriptor is wrong"),
    MEANING(ERR_INVALID_DATA, "the data is wrong"),
    MEANING(ERR_OUT_OF_RESOURCE, "a resource of the system is used up"),
    MEANING(ERR_OUT_OF_MEMORY, "memory is used up"),
    MEANING(ERR_FATAL, "the process has no network interfaces"),
};
#undef MEANING

thread_local constinit int t_last = UTOFU_SUCCESS;

}  // namespace

int failed(int status) {
  if (status != UTOFU_ERR_NOT_FOUND && status != UTOFU_ERR_NOT_COMPLETED && status != UTOFU_ERR_BUSY) t_last = status;
  return status;
}

}  // namespace tofu_emulator

extern "C" {

#pragma GCC visibility push(default)

void putofu_get_last_error(char* text);
void putofu_get_last_error(char* text) {
  using namespace tofu_emulator;       // NOLINT(google-build-using-namespace): this is a C function
  constexpr std::size_t kBytes = 256;  // smaller than any caller's buffer
  if (text == nullptr) return;
  const auto* const found =
      std::find_if(std::begin(kMeanings), std::end(kMeanings), [](const Meaning& one) { return one.code == t_last; });
  if (found != std::end(kMeanings)) {
    (void)std::snprintf(text, kBytes, "%s (%d): %s", found->name, t_last, found->text);
  } else {
    (void)std::snprintf(text, kBytes, "error %d", t_last);
  }
}

[[gnu::weak, gnu::alias("putofu_get_last_error")]] decltype(putofu_get_last_error) utofu_get_last_error;

#pragma GCC visibility pop

}  // extern "C"
