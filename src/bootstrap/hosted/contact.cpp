#include "bootstrap/hosted/contact.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <system_error>

#include "base/fd.hpp"
#include "bootstrap/hosted/launcher.hpp"
#include "bootstrap/hosted/proof.hpp"

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

bool parse_addresses(std::string_view text, std::vector<Address>* addresses) {
  while (!text.empty()) {
    std::string_view one = next_field(&text, ',');
    Address address;
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
  for (const Address& address : contact.addresses) {
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

}  // namespace heddle::bootstrap::hosted
