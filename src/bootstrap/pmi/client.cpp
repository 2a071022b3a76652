#include "bootstrap/pmi/client.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "base/timeout.hpp"

namespace heddle::bootstrap::pmi {
namespace {

constexpr std::int64_t kAnswerNs = 60'000'000'000;
constexpr const char* kContactKey = "heddle-contact";

}  // namespace

base::Result<std::unique_ptr<Client>> Client::open(const Given& given) {
  std::unique_ptr<Client> client(new Client(given));
  if (const base::Status status = client->greet(); status != HEDDLE_DONE) return status;
  return client;
}

base::Status Client::greet() {
  const auto greeting = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", kAnswerNs);
  if (!greeting) return greeting.status();
  if (const long version = greeting->number("pmi_version").value_or(-1); version != 1) {
    return base::fail(HEDDLE_ERR_VERSION, "the launcher speaks PMI version %ld; version 1 is needed", version);
  }
  const auto most = ask("cmd=get_maxes", "maxes", kAnswerNs);
  if (!most) return most.status();
  if (const long length = most->number("vallen_max").value_or(0); length <= static_cast<long>(hosted::kMaxValueBytes)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMI takes values of less than %ld bytes; %zu are needed",
                      length, hosted::kMaxValueBytes);
  }
  const auto space = ask("cmd=get_my_kvsname", "my_kvsname", kAnswerNs);
  if (!space) return space.status();
  space_ = space->field("kvsname").value_or("");
  if (space_.empty())
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMI does not name the job's key-value space");
  return HEDDLE_DONE;
}

base::Status Client::send(const std::string& line) const {
  const std::string whole = line + "\n";
  std::size_t sent = 0;
  while (sent < whole.size()) {
    const ssize_t count = ::send(given_.fd, whole.data() + sent, whole.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "the launcher has closed the PMI connection (PMI_FD)");
    sent += static_cast<std::size_t>(count);
  }
  return HEDDLE_DONE;
}

base::Result<Line> Client::expect(std::string_view command, std::int64_t timeout_ns) {
  base::Timeout timeout(timeout_ns, clock_);
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    if (received_.size() > kMaxLine) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "the launcher's PMI sends a line of more than %zu bytes", kMaxLine);
    }
    if (timeout.over()) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMI has not answered for %lld s",
                        static_cast<long long>(timeout_ns / 1'000'000'000));
    }
    pollfd readable{given_.fd, POLLIN, 0};
    const int ready = ::poll(&readable, 1, timeout.slice_ms());
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    std::array<char, 1024> bytes;
    const ssize_t got = ::recv(given_.fd, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher has closed the PMI connection (PMI_FD)");
    received_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  const auto line = Line::parse(std::string_view(received_).substr(0, end));
  received_.erase(0, end + 1);
  if (!line || line->command() != command) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the launcher's PMI answers \"%.40s\" where \"%.40s\" belongs",
                      line ? std::string(line->command()).c_str() : "(not a line of PMI)",
                      std::string(command).c_str());
  }
  if (line->number("rc").value_or(0) != 0) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMI refuses: %.40s, %.200s", std::string(command).c_str(),
                      std::string(line->field("msg").value_or("no reason given")).c_str());
  }
  return *line;
}

base::Result<Line> Client::ask(const std::string& line, std::string_view answer, std::int64_t timeout_ns) {
  if (const base::Status status = send(line); status != HEDDLE_DONE) return status;
  return expect(answer, timeout_ns);
}

base::Result<std::string> Client::get(const char* key) {
  const auto line = ask("cmd=get kvsname=" + space_ + " key=" + key, "get_result", kAnswerNs);
  if (!line) return line.status();
  return std::string(line->field("value").value_or(""));
}

bool Client::one_host() {
  const auto mapping = get("PMI_process_mapping");
  return given_.size == 1 || (mapping && maps_to_one_node(*mapping));
}

base::Result<std::string> Client::share(const std::string& value) {
  if (given_.rank == 0) {
    const auto put =
        ask("cmd=put kvsname=" + space_ + " key=" + kContactKey + " value=" + value, "put_result", kAnswerNs);
    if (!put) return put.status();
  }
  // Without a time-out: a rank may be late, and a launcher ends the job if a rank dies.
  const auto all_here = ask("cmd=barrier_in", "barrier_out", base::Timeout::kForever);
  if (!all_here) return all_here.status();
  return get(kContactKey);
}

void Client::finish() {
  // Nothing depends on the answer, but a launcher may think that a process has died if it exits
  // before the answer.
  static_cast<void>(ask("cmd=finalize", "finalize_ack", kAnswerNs));
}

void Client::abort(int code, const char*) {
  static_cast<void>(send("cmd=abort exitcode=" + std::to_string(code)));
}

}  // namespace heddle::bootstrap::pmi
