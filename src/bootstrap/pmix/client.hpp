// libpmix, and the rank's side of it.
#pragma once

#include <pmix.h>

#include <memory>

#include "base/error.hpp"
#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::pmix {

// The few functions of libpmix that joining needs.
struct PmixLibrary {
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
  static base::Result<const PmixLibrary*> load();
};

// The rank's side of PMIx: the part that joining needs.
class Client final : public hosted::ForeignLauncher {
 public:
  // BOOTSTRAP: no library, no server, or it does not tell the size of the job.
  static base::Result<std::unique_ptr<Client>> open();

  [[nodiscard]] const char* name() const override { return "pmix"; }
  [[nodiscard]] std::uint32_t rank() const override { return self_.rank; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] bool one_host() override;
  base::Result<std::string> share(const std::string& value) override;
  void finish() override;
  void abort(int code, const char* message) override;

 private:
  explicit Client(const PmixLibrary& library) : library_(library) {}
  base::Status greet();
  base::Status failed(const char* call, pmix_status_t status) const;
  [[nodiscard]] pmix_proc_t whole_job() const;
  void release(pmix_value_t* value) const;
  base::Result<std::uint32_t> number(const char* key);

  const PmixLibrary& library_;
  pmix_proc_t self_{};
  std::uint32_t size_ = 0;
};

}  // namespace heddle::bootstrap::pmix
