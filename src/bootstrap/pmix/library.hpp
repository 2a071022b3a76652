// The few functions of libpmix that joining needs.
#pragma once

#include <pmix.h>

#include "base/error.hpp"

namespace heddle::bootstrap::pmix {

struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Abort) abort = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
  decltype(&PMIx_Get_version) version = nullptr;
  // From PMIx 4.2 on; null: there is none.
  void (*value_destruct)(pmix_value_t* value) = nullptr;

  // Stays loaded until the process ends. BOOTSTRAP: not found, or it lacks a function.
  static base::Result<const Library*> load();
};

}  // namespace heddle::bootstrap::pmix
