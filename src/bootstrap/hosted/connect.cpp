#include "bootstrap/hosted/connect.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/hosted/hosted.hpp"

namespace heddle::bootstrap::hosted {

namespace {

constexpr std::string_view kMark = "heddle-contact";
constexpr unsigned kContactVersion = 1;
constexpr std::size_t kMostAddresses = 16;

using Sixteen = std::array<std::uint8_t, 16>;

std::string hex(const Sixteen& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

bool parse_hex(std::string_view text, Sixteen* bytes) {
  if (text.size() != 2 * bytes->size()) return false;
  for (std::size_t i = 0; i < bytes->size(); ++i) {
    const char* begin = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, (*bytes)[i], 16);
    if (error != std::errc{} || end != begin + 2) return false;
  }
  return true;
}

template <class T>
bool parse_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

// Splits off the text before the next `mark`, or everything.
std::string_view next_field(std::string_view* rest, char mark) {
  const std::size_t at = rest->find(mark);
  const std::string_view field = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + 1);
  return field;
}

bool parse_addresses(std::string_view text, std::vector<HostAddress>* addresses) {
  while (!text.empty()) {
    std::string_view one = next_field(&text, ',');
    HostAddress address;
    address.host = next_field(&one, '-');
    in_addr ignored{};
    if (::inet_pton(AF_INET, address.host.c_str(), &ignored) != 1) return false;
    if (!parse_number(one, &address.port) || address.port == 0) return false;
    if (addresses->size() == kMostAddresses) return false;
    addresses->push_back(std::move(address));
  }
  return true;
}

}  // namespace

base::Result<Machine> this_machine() {
  struct {
    std::array<char, 64> boot;
    std::uint64_t network;
    std::uint64_t processes;
  } seen{};
  const base::Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file.valid() || ::read(file.get(), seen.boot.data(), seen.boot.size()) <= 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM,
                            "cannot read /proc/sys/kernel/random/boot_id, which tells machines apart");
  }
  struct stat about{};
  if (::stat("/proc/self/ns/net", &about) == 0) seen.network = about.st_ino;
  if (::stat("/proc/self/ns/pid", &about) == 0) seen.processes = about.st_ino;
  return keyed_hash(JobSecret{}, std::as_bytes(std::span(&seen, 1)));
}

std::string Contact::socket_name() const {
  return "heddle-" + hex(socket);
}

std::string encode(const Contact& contact) {
  std::string text = std::string(kMark) + ":" + std::to_string(kContactVersion) + ":" + hex(contact.secret) + ":" +
                     hex(contact.machine) + ":" + hex(contact.socket) + ":";
  const char* comma = "";
  std::size_t count = 0;
  for (const HostAddress& address : contact.addresses) {
    const std::string one = comma + address.host + "-" + std::to_string(address.port);
    if (count++ == kMostAddresses || text.size() + one.size() > kMaxValueBytes) break;
    text += one;
    comma = ",";
  }
  return text;
}

base::Result<Contact> decode_contact(std::string_view text) {
  unsigned version = 0;
  if (text.size() > kMaxValueBytes || next_field(&text, ':') != kMark ||
      !parse_number(next_field(&text, ':'), &version)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "what the launcher gives as rank 0's contact is not one of Heddle's; are all programs of the job "
                      "linked with Heddle?");
  }
  if (version != kContactVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank 0's contact is of version %u, this process (Heddle %d.%d.%d) knows version %u; start all "
                      "ranks with the same version of Heddle",
                      version, HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH, kContactVersion);
  }
  Contact contact;
  if (!parse_hex(next_field(&text, ':'), &contact.secret) || !parse_hex(next_field(&text, ':'), &contact.machine) ||
      !parse_hex(next_field(&text, ':'), &contact.socket) || !parse_addresses(text, &contact.addresses)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "rank 0's contact, as the launcher gives it, is damaged");
  }
  return contact;
}

namespace {

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  std::uint64_t finish() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

std::uint64_t load(const void* bytes, std::size_t count = 8) {
  std::uint64_t word = 0;
  if (count > 0) std::memcpy(&word, bytes, count);  // an empty message may have no address
  static_assert(std::endian::native == std::endian::little, "the words of SipHash are little-endian");
  return word;
}

}  // namespace

Code keyed_hash(const JobSecret& key, std::span<const std::byte> message) {
  const std::uint64_t k0 = load(key.data());
  const std::uint64_t k1 = load(key.data() + 8);
  State state{k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL ^ 0xeeU, k0 ^ 0x6c7967656e657261ULL,
              k1 ^ 0x7465646279746573ULL};
  std::size_t at = 0;
  for (; at + 8 <= message.size(); at += 8) state.take(load(message.data() + at));
  state.take(load(message.data() + at, message.size() - at) | (message.size() & 0xFFU) << 56U);
  state.v2 ^= 0xeeU;
  const std::uint64_t low = state.finish();
  state.v1 ^= 0xddU;
  const std::uint64_t high = state.finish();
  Code code;
  std::memcpy(code.data(), &low, sizeof low);
  std::memcpy(code.data() + sizeof low, &high, sizeof high);
  return code;
}

Code proof(const JobSecret& secret, Side side, const Knock& knock, const Code& host_nonce) {
  struct {
    Side side;
    Knock knock;
    Code host_nonce;
  } const message{side, knock, host_nonce};
  static_assert(sizeof message == sizeof(Side) + sizeof(Knock) + sizeof(Code), "no padding");
  return keyed_hash(secret, std::as_bytes(std::span(&message, 1)));
}

bool equal(const Code& a, const Code& b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

namespace {

bool credentials(int socket, ucred* peer) {
  socklen_t length = sizeof *peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

void set(int socket, int level, int option, int value) {
  // The options only improve matters, so failures do not count.
  [[maybe_unused]] const int ignored = ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

ProcessFd make_socket(int domain, int flags) {
  return ProcessFd::make([=] { return ::socket(domain, SOCK_STREAM | SOCK_CLOEXEC | flags, 0); });
}

LocalName::LocalName(const std::string& name) {
  address_.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof address_.sun_path - 1);
  std::memcpy(address_.sun_path + 1, name.data(), count);
  length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
}

bool same_user(int socket) {
  ucred peer{};
  return credentials(socket, &peer) && peer.uid == ::geteuid();
}

pid_t process_of(int socket) {
  ucred peer{};
  return credentials(socket, &peer) ? peer.pid : 0;
}

void prepare_stream(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

base::Result<DescriptorName> name_descriptor(int fd) {
  DescriptorName name;
  if (fd < 0) return name;
  struct stat about{};
  if (::fstat(fd, &about) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot publish descriptor %d", fd);
  name.process = static_cast<std::int32_t>(::getpid());
  name.number = fd;
  name.device = about.st_dev;
  name.file = about.st_ino;
  return name;
}

namespace {

// The /proc entries of a dead process belong to root until it is waited for, so errno does not
// tell.
bool is_gone(std::int32_t process) {
  const int number = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (number < 0) return errno == ESRCH;
  const base::Fd pidfd(number);
  pollfd end{pidfd.get(), POLLIN, 0};
  return ::poll(&end, 1, 0) == 1;
}

struct Opened {
  base::Fd fd;
  int error = 0;
  bool other = false;  // it is another file
};

// Looks at the file first, and opens it only if it is the right one: the number may be that of
// another process, and the file a device.
Opened open_same(const std::string& path, const DescriptorName& name) {
  Opened opened;
  const int number = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (number < 0) {
    opened.error = errno;
    return opened;
  }
  const base::Fd seen(number);
  struct stat about{};
  opened.other = ::fstat(number, &about) != 0 || about.st_dev != name.device || about.st_ino != name.file;
  if (opened.other) return opened;
  const int same = ::open(("/proc/self/fd/" + std::to_string(number)).c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (same < 0) opened.error = errno;
  opened.fd.reset(same);
  return opened;
}

}  // namespace

base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.number);
  Opened opened = open_same(path, name);
  if (opened.fd.valid()) return std::move(opened.fd);
  if (opened.other || opened.error == ENOENT || opened.error == ESRCH || is_gone(name.process)) return fail_gone(rank);
  const base::Status status =
      opened.error == EMFILE || opened.error == ENFILE ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM;
  errno = opened.error;
  return base::fail_errno(status,
                          "rank %u is on this machine, but its memory cannot be opened as %s (may the ranks look at "
                          "each other's processes? else set HEDDLE_TRANSPORTS=ucx)",
                          rank, path.c_str());
}

namespace {

constexpr int kConnectTimeoutMs = 10'000;  // each address
constexpr int kAnswerTimeoutMs = 30'000;

base::Result<ProcessFd> connect_locally(const Contact& contact) {
  ProcessFd socket = make_socket(AF_UNIX);
  const LocalName name(contact.socket_name());
  int result = 0;
  do {
    result = socket.valid() ? ::connect(socket.get(), name.address(), name.length()) : -1;
  } while (result != 0 && errno == EINTR);
  if (result != 0)
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "rank 0's local socket cannot be reached (has it died?)");
  if (!same_user(socket.get())) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who listens at rank 0's local socket is another user's process");
  }
  return socket;
}

// False: errno says why.
bool connect_within(int socket, const sockaddr_in& address, int timeout_ms) {
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd writable{socket, POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&writable, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (ready > 0) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

base::Result<ProcessFd> connect_by_network(const Contact& contact) {
  std::string tried;
  for (const HostAddress& one : contact.addresses) {
    ProcessFd socket = make_socket(AF_INET, SOCK_NONBLOCK);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(one.port);
    ::inet_pton(AF_INET, one.host.c_str(), &address.sin_addr);
    if (socket.valid() && connect_within(socket.get(), address, kConnectTimeoutMs)) {
      ::fcntl(socket.get(), F_SETFL, 0);  // blocking from here on
      prepare_stream(socket.get());
      return socket;
    }
    tried += " " + one.host + ":" + std::to_string(one.port) + " (" + std::strerror(errno) + ")";
  }
  return base::fail(
      HEDDLE_ERR_BOOTSTRAP,
      "rank 0 is on another machine and cannot be reached at%s; the machines must reach each other by TCP",
      tried.empty() ? " any address: it does not listen for other machines" : tried.c_str());
}

bool receive(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    pollfd readable{socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, kAnswerTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// Sends a few bytes over a new connection. The connection takes them at once.
bool give(int socket, const void* from, std::size_t bytes) {
  return ::send(socket, from, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

base::Status prove(int socket, const Contact& contact, std::uint32_t rank) {
  Knock knock;
  knock.rank = rank;
  const auto nonce = make_secret();
  if (!nonce) return nonce.status();
  knock.nonce = *nonce;
  Answer answer;
  if (!give(socket, &knock, sizeof knock) || !receive(socket, &answer, sizeof answer)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "rank 0 does not answer, or has cut the connection");
  }
  if (answer.magic != kKnockMagic) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who answers at rank 0's address is not a process of Heddle");
  }
  if (answer.version != kKnockVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank 0 speaks version %u of the meeting protocol (Heddle %u.%u.%u), this process version %u "
                      "(Heddle %d.%d.%d); start all ranks with the same version of Heddle",
                      answer.version, answer.library >> 16, answer.library >> 8 & 255U, answer.library & 255U,
                      kKnockVersion, HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  }
  if (!equal(answer.code, proof(contact.secret, Side::host, knock, answer.nonce))) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who answers at rank 0's address does not know the job's secret");
  }
  const Code code = proof(contact.secret, Side::rank, knock, answer.nonce);
  if (!give(socket, code.data(), code.size())) {
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "rank 0 has cut the connection");
  }
  return HEDDLE_DONE;
}

}  // namespace

base::Result<Connection> connect(const Contact& contact, std::uint32_t rank) {
  const auto machine = this_machine();
  if (!machine) return machine.status();
  const bool local = *machine == contact.machine;
  auto socket = local ? connect_locally(contact) : connect_by_network(contact);
  if (!socket) return socket.status();
  if (const base::Status status = prove(socket->get(), contact, rank); status != HEDDLE_DONE) return status;
  return Connection{std::move(*socket), local};
}

}  // namespace heddle::bootstrap::hosted
