#include "bootstrap/pmi/pmi.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/clock.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::pmi {

namespace {

constexpr std::string_view kCommand = "cmd";

template <class T>
bool parse_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Splits off the text before the next `mark`; false: there is none.
bool cut(std::string_view* rest, char mark, std::string_view* field) {
  const std::size_t at = rest->find(mark);
  if (at == std::string_view::npos) return false;
  *field = rest->substr(0, at);
  rest->remove_prefix(at + 1);
  return true;
}

}  // namespace

std::optional<Line> Line::parse(std::string_view text) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (text.size() > kMaxLine || !std::all_of(text.begin(), text.end(), printable)) return std::nullopt;
  Line line;
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    line.fields_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  if (line.fields_.empty() || line.fields_.front().first != kCommand) return std::nullopt;
  return line;
}

std::optional<std::string_view> Line::field(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<long> Line::number(std::string_view name) const {
  const auto text = field(name);
  long value = 0;
  if (!text || !parse_number(*text, &value)) return std::nullopt;
  return value;
}

bool maps_to_one_node(std::string_view mapping) {
  constexpr std::string_view kStart = "(vector,";
  if (mapping.substr(0, kStart.size()) != kStart) return false;
  mapping.remove_prefix(kStart.size());
  bool any = false;
  while (!mapping.empty() && mapping.front() == '(') {
    mapping.remove_prefix(1);
    std::string_view first;
    std::string_view nodes;
    std::string_view ranks;
    long node = -1;
    long count = 0;
    if (!cut(&mapping, ',', &first) || !cut(&mapping, ',', &nodes) || !cut(&mapping, ')', &ranks)) return false;
    if (!parse_number(first, &node) || !parse_number(nodes, &count) || node != 0 || count != 1) return false;
    any = true;
    if (!mapping.empty() && mapping.front() == ',') mapping.remove_prefix(1);
  }
  return any && mapping == ")";
}

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
      [&]() -> base::Result<std::unique_ptr<hosted::ForeignLauncher>> {
        auto client = Client::open(given);
        if (!client) return client.status();
        return std::unique_ptr<hosted::ForeignLauncher>(std::move(*client));
      },
      environment);
}

}  // namespace heddle::bootstrap::pmi
