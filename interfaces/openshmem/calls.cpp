#include "openshmem/calls.hpp"

#include <dlfcn.h>

namespace heddle::shmem {

void tell_calls(heddle_context context) {
  using Hook = void(heddle_context, decltype(&heddle_trace_begin), decltype(&heddle_trace_end));
  auto* const hook = reinterpret_cast<Hook*>(::dlsym(RTLD_DEFAULT, "heddle_shmem_calls"));
  if (hook != nullptr) hook(context, &heddle_trace_begin, &heddle_trace_end);
}

}  // namespace heddle::shmem
