// The rank's side of PMI-1, the line protocol that hydra's mpiexec and Slurm's srun --mpi=pmi2
// speak over PMI_FD.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "bootstrap/hosted/launcher.hpp"
#include "bootstrap/pmi/line.hpp"

namespace heddle::bootstrap::pmi {

struct Given {
  int fd = -1;  // not closed
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  base::Clock* clock = nullptr;  // outlives the client; null: the system's
};

class Client final : public hosted::Launcher {
 public:
  // Greets the server. BOOTSTRAP: it does not answer, answers nonsense or refuses; VERSION: it does
  // not speak PMI-1.
  static base::Result<std::unique_ptr<Client>> open(const Given& given);

  [[nodiscard]] const char* name() const override { return "pmi"; }
  [[nodiscard]] std::uint32_t rank() const override { return given_.rank; }
  [[nodiscard]] std::uint32_t size() const override { return given_.size; }
  [[nodiscard]] bool one_host() override;
  base::Result<std::string> share(const std::string& value) override;
  void finish() override;
  void abort(int code, const char* message) override;

 private:
  explicit Client(const Given& given) : given_(given) {}
  base::Status greet();
  base::Status send(const std::string& line) const;
  // Receives the next line, which must be this command and report no failure. timeout_ns: for the
  // whole line; -1: for ever.
  base::Result<Line> expect(std::string_view command, std::int64_t timeout_ns);
  base::Result<Line> ask(const std::string& line, std::string_view answer, std::int64_t timeout_ns);
  base::Result<std::string> get(const char* key);

  const Given given_;
  base::SystemClock system_clock_;
  base::Clock& clock_ = given_.clock != nullptr ? *given_.clock : system_clock_;
  std::string space_;     // the job's name for its keys
  std::string received_;  // received, not yet split into lines
};

}  // namespace heddle::bootstrap::pmi
