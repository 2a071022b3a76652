// How ranks of a hosted job reach each other: contact, proof, sockets, descriptors.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/local/channel.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::hosted {

// A kernel with the namespaces of network and processes: they decide whether two processes on it
// can meet by a local socket, pass descriptors and name each other by pid.
using Machine = std::array<std::uint8_t, 16>;
base::Result<Machine> this_machine();

struct HostAddress {
  std::string host;  // IPv4, as text
  std::uint16_t port = 0;
};

// The contact that rank 0 gives to the others through the launcher: its addresses and the job's
// secret.
struct Contact {
  JobSecret secret{};
  Machine machine{};
  std::array<std::uint8_t, 16> socket{};  // makes the local socket's name
  std::vector<HostAddress> addresses;     // for other machines; as many as fit, the likeliest first

  // The name of the local socket: abstract, so that nothing is left in a file system.
  [[nodiscard]] std::string socket_name() const;
};

// At most hosted::kMaxValueBytes of letters, digits and "-.:,".
std::string encode(const Contact& contact);
// BOOTSTRAP: the text is no contact. VERSION: it is of another version of Heddle.
base::Result<Contact> decode_contact(std::string_view text);

// How a rank and rank 0 prove to each other that they know the job's secret, without showing it.
//
//   rank   → host   Knock:  who I am, a random number
//   host   → rank   Answer: a random number, and a code over both numbers that needs the secret
//   rank   → host   Code:   another code over the same numbers; it differs, so that neither can be
//                           sent back to its sender
//
// The codes are SipHash-2-4 with 128 bits, a keyed hash made for short messages. The data after the
// proof is neither encrypted nor signed: an attacker who can change packets on the way can take
// over the connection (docs/clusters.md).

inline constexpr std::uint64_t kKnockMagic = 0x6B63'6F6E'6C64'6468ULL;  // "hddlnock" in a dump
inline constexpr std::uint32_t kKnockVersion = 1;
inline constexpr std::uint32_t kLibraryVersion =
    HEDDLE_VERSION_MAJOR << 16 | HEDDLE_VERSION_MINOR << 8 | HEDDLE_VERSION_PATCH;

using Code = std::array<std::uint8_t, 16>;

struct Knock {
  std::uint64_t magic = kKnockMagic;
  std::uint32_t version = kKnockVersion;
  std::uint32_t library = kLibraryVersion;
  std::uint32_t rank = 0;
  std::uint32_t reserved = 0;
  Code nonce{};
};
static_assert(sizeof(Knock) == 40);

struct Answer {
  std::uint64_t magic = kKnockMagic;
  std::uint32_t version = kKnockVersion;
  std::uint32_t library = kLibraryVersion;
  Code nonce{};
  Code code{};  // zeros where the versions differ
};
static_assert(sizeof(Answer) == 48);

// SipHash-2-4, 128 bits.
Code keyed_hash(const JobSecret& key, std::span<const std::byte> message);

enum class Side : std::uint64_t { host = 1, rank = 2 };
Code proof(const JobSecret& secret, Side side, const Knock& knock, const Code& host_nonce);

// Takes a time that does not depend on where they differ.
bool equal(const Code& a, const Code& b);

// The few socket calls that both sides of a meeting make.

// A stream socket, close-on-exec, which forked children do not keep; flags: those of socket(2). Not
// valid: errno says why.
ProcessFd make_socket(int domain, int flags = 0);

// An abstract name: it ends with its socket, and is not in a file system.
class LocalName {
 public:
  explicit LocalName(const std::string& name);
  [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] socklen_t length() const { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

// True: the kernel says that the process that connected to this local socket, or listens at its
// other end, is this user's.
bool same_user(int socket);
// That process's number; 0: not known.
pid_t process_of(int socket);

// TCP: small frames are sent at once, and a machine that is gone is noticed within half a minute.
void prepare_stream(int socket);

// The name of a descriptor, by which another process of the same machine opens the same file.
//
// Rank 0 passes the descriptors of cards on by its local socket, so they reach the ranks of rank
// 0's machine only. Ranks of another machine open each other's through /proc/PID/fd, which the
// kernel allows to processes of one user that may look at each other (no ptrace is needed). A
// process that has died has no /proc entry; its number may be another process's, so the file is
// compared.
struct DescriptorName {
  std::int32_t process = 0;
  std::int32_t number = -1;  // -1: there is none
  std::uint64_t device = 0;
  std::uint64_t file = 0;
};
static_assert(sizeof(DescriptorName) == 24 && sizeof(DescriptorName) <= local::kMaxCardTail);

// A name for a descriptor of this process; -1 has one, too. SYSTEM: the descriptor is not open.
base::Result<DescriptorName> name_descriptor(int fd);
// A new descriptor for the same file. PEER_FAILED: the process is gone. SYSTEM: the kernel does not
// allow it. NO_MEMORY: too many are open.
base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank);

// How a rank connects to rank 0.
struct Connection {
  ProcessFd socket;
  bool local = false;  // it passes descriptors
};

// Connects to the host that has this contact; both sides have then proved that they know the
// secret. It uses the local socket if both are on one machine, else the first address that answers.
// BOOTSTRAP: no process answers, or the one that does is not rank 0 of this job, or it rejects
// (this rank has been joined before). VERSION: it is of another version.
base::Result<Connection> connect(const Contact& contact, std::uint32_t rank);

}  // namespace heddle::bootstrap::hosted
