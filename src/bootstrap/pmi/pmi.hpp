// PMI-1: joining, the lines of the protocol, and its client. It serves jobs started by hydra's
// mpiexec (MPICH, Intel MPI) and by srun --mpi=pmi2, whose processes inherit a socket as PMI_FD.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::pmi {

// PMI_FD is set.
bool started_by_launcher();

// Joins, once per process; blocks until all ranks have. Errors: CONFIG (PMI_RANK, PMI_SIZE or
// PMI_FD is missing or not a number), STATE (another living process has joined as this rank), and
// those of hosted::open().
base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment& environment);

// Longer lines are rejected. A value has at most 1024 bytes, and a line holds only one.
inline constexpr std::size_t kMaxLine = 4096;

// A line of the PMI-1 protocol: "cmd=get_result rc=0 value=…". Nothing here trusts what the other
// end says.
class Line {
 public:
  // text: without the newline. Nothing: it is too long, has bytes that are not printable, or does
  // not begin with cmd=. Words without "=" are skipped, since some servers write messages with
  // blanks. If two fields have one name, the first counts.
  static std::optional<Line> parse(std::string_view text);

  [[nodiscard]] std::string_view command() const { return fields_.front().second; }
  // Nothing: there is no such field.
  [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const;
  // Nothing: there is no such field or it is not a number.
  [[nodiscard]] std::optional<long> number(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// True: the value of PMI_process_mapping, "(vector,(first node,nodes,ranks of each),…)", says that
// all ranks are on one node. False: they are not, or the text is not such a mapping.
bool maps_to_one_node(std::string_view mapping);

// The rank's side of PMI-1, the line protocol that hydra's mpiexec and Slurm's srun --mpi=pmi2
// speak over PMI_FD.

struct Given {
  int fd = -1;  // not closed
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  base::Clock* clock = nullptr;  // outlives the client; null: the system's
};

class Client final : public hosted::ForeignLauncher {
 public:
  // Greets the server. BOOTSTRAP: it does not answer, answers nonsense or rejects; VERSION: it does
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
