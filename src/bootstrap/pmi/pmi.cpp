#include "bootstrap/pmi/pmi.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "bootstrap/common.hpp"
#include "bootstrap/gather.hpp"
#include "bootstrap/hosted/hosted.hpp"
#include "bootstrap/pmi/client.hpp"

namespace heddle::bootstrap::pmi {
namespace {

constexpr const char* kFdVariable = "PMI_FD";

base::Result<std::uint32_t> read_number(const char* name, std::uint32_t most) {
  const char* text = std::getenv(name);
  const std::string_view all(text != nullptr ? text : "");
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error == std::errc{} && end == all.data() + all.size() && value <= most) return value;
  return base::fail(
      HEDDLE_ERR_CONFIG,
      "%s=\"%s\" is not a whole number from 0 to %u; mpiexec or srun sets it, nobody else should (unset PMI_* "
      "to start a job of one)",
      name, text != nullptr ? text : "", most);
}

}  // namespace

bool started_by_launcher() {
  return std::getenv(kFdVariable) != nullptr;
}

base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment& environment) {
  const auto fd = read_number(kFdVariable, 1U << 30);
  if (!fd) return fd.status();
  const auto rank = read_number("PMI_RANK", kMaxRanks - 1);
  if (!rank) return rank.status();
  const auto size = read_number("PMI_SIZE", kMaxRanks);
  if (!size) return size.status();
  const Given given{static_cast<int>(*fd), *rank, *size, environment.clock};
  if (const auto status = claim_socket(given.fd, {kFdVariable, "PMI_*"}); status != HEDDLE_DONE) return status;
  return hosted::open(
      [&]() -> base::Result<std::unique_ptr<hosted::Launcher>> {
        auto client = Client::open(given);
        if (!client) return client.status();
        return std::unique_ptr<hosted::Launcher>(std::move(*client));
      },
      environment);
}

}  // namespace heddle::bootstrap::pmi
