// One command on its way from the api to the transport: a plain value.
//
// A small message lies in its command: once the command is accepted, the caller may reuse its
// memory. A longer message, a put or a get names the caller's memory instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/copy.hpp"
#include "wire/packet.hpp"

namespace heddle::transport {

enum class Opcode : std::uint8_t {
  message,  // header + payload to a peer's worker, with 32 bits of immediate data
  put,
  get,
  atomic,  // with or without result
  kCount
};
constexpr std::uint32_t bit(Opcode opcode) {
  return 1U << static_cast<unsigned>(opcode);
}

// A message header passed to post() is at most this long.
inline constexpr std::uint32_t kMaxHeaderBytes = 128;

// A region of a peer (or of this rank) after import.
struct RemoteMemory {
  // address in this process for plain loads and stores; null: commands only
  std::byte* direct = nullptr;
  std::uint32_t opcodes = 0;  // which of put, get, atomic this memory accepts as commands
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
  // If the memory has `direct`: only commands reach so many bytes at its beginning and at its end.
  // `direct` is the address where the first byte of the memory would be.
  std::uint32_t edge_before = 0;
  std::uint32_t edge_after = 0;
  std::array<std::uint64_t, 4> handle{};  // the transport's own, passed back in commands

  // Plain loads and stores reach every byte.
  [[nodiscard]] bool all_direct() const { return direct != nullptr && edge_before == 0 && edge_after == 0; }
};

using Token = std::uint64_t;

// Pointers must stay valid until the completion, except the message header, which post() copies.
// The out-fields (done, source_free) must be false on entry: a transport sets them and never clears
// them.
struct Command {
  // Every transport accepts a packet (see `inlined`) of this length.
  static constexpr std::uint32_t kInlineBytes = 64;
  static_assert(kInlineBytes <= base::kShortBytes);

  Opcode opcode = Opcode::message;
  bool wants_source_free = false;  // in: report separately when the source may be reused
  bool alone = false;              // in: put, get: see TransportWorker::post()
  bool inlined = false;            // in: message: the packet, of `bytes` bytes, lies in `packet`
  bool done = false;               // out: finished during post(); no completion will follow
  // out: source reusable already; no source_free completion will follow
  bool source_free = false;
  std::uint8_t atomic_op = 0;  // heddle_atomic_op
  std::uint32_t rank = 0;
  // message: the target's worker number. else: the worker that serves the command, if one must
  std::uint32_t worker = 0;
  std::uint32_t immediate = 0;  // message
  // Message that is not inlined. Header, zeros up to a multiple of 8, payload: one contiguous
  // packet.
  std::uint32_t header_bytes = 0;
  std::uint64_t bytes = 0;  // message: of the payload; inlined: of the packet. atomic: 4 or 8
  Token token = 0;          // returned in the completion; 0: nobody waits for that
  // Inlined: the whole packet, with zeros up to a multiple of 8 behind it. Else not initialised.
  alignas(8) std::byte packet[kInlineBytes];  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const RemoteMemory* remote = nullptr;       // null: it is a message
  // An inlined message has none of the fields from here on.
  const void* header;
  // Message that is not inlined, put: source (not written). Get, atomic: destination (atomic: null:
  // no result).
  void* local;
  std::uint64_t offset;
  std::uint64_t operand;  // atomic
  std::uint64_t compare;  // atomic

  // NOLINTBEGIN(cppcoreguidelines-pro-type-member-init,modernize-use-default-member-init,clang-analyzer-optin.cplusplus.UninitializedObject)
  Command() : header(nullptr), local(nullptr), offset(0), operand(0), compare(0) {}
  // For a put or get. Fields that these do not have stay as they are.
  explicit Command(Opcode of) : opcode(of) {}
  // For a message; set_message() fills it in. Fields that an inlined message does not have stay as
  // they are: on a shared worker stores to them would cost a tenth of the time of a post, since the
  // lock waits for them.
  Command(std::uint32_t to_rank, std::uint32_t to_worker, std::uint32_t with_immediate)
      : rank(to_rank), worker(to_worker), immediate(with_immediate) {}
  // NOLINTEND(cppcoreguidelines-pro-type-member-init,modernize-use-default-member-init,clang-analyzer-optin.cplusplus.UninitializedObject)

  // A message of these lengths is inlined: its source is free when it is accepted.
  [[nodiscard]] static constexpr bool inlines(std::uint32_t message_header_bytes, std::uint64_t payload_bytes) {
    return payload_bytes <= kInlineBytes && wire::pad8(message_header_bytes) + payload_bytes <= kInlineBytes;
  }
  // The memory that the payload of a message is copied from.
  [[nodiscard]] const void* source() const { return inlined ? packet : local; }
  // Bytes of the whole packet of a message.
  [[nodiscard]] std::uint64_t packet_bytes() const { return wire::pad8(header_bytes) + bytes; }

  // Makes a command that has no message yet one of this header and payload, inlined if that is
  // possible.
  void set_message(const void* message_header, std::uint32_t message_header_bytes, const void* payload,
                   std::uint64_t payload_bytes) {
    if (payload_bytes == 8 && message_header_bytes == 0) [[likely]] {
      inlined = true;
      bytes = 8;
      std::memcpy(packet, payload, 8);
    } else {
      set_other_message(message_header, message_header_bytes, payload, payload_bytes);
    }
  }
  // The same with a header of one word, which stays where it is until post() returns.
  void set_message(const std::uint64_t& word, const void* payload, std::uint64_t payload_bytes) {
    if (payload_bytes == 8) [[likely]] {
      set_words(word, payload);
    } else {
      set_other_message(&word, sizeof word, payload, payload_bytes);
    }
  }
  // The same with a payload of one word.
  void set_words(std::uint64_t word, const void* payload) {
    inlined = true;
    bytes = 16;
    std::memcpy(packet, &word, 8);
    std::memcpy(packet + 8, payload, 8);
  }

 private:
  void set_other_message(const void* message_header, std::uint32_t message_header_bytes, const void* payload,
                         std::uint64_t payload_bytes);
};

// Any lengths. Out of line, so that the usual length costs its callers no registers.
[[gnu::noinline]] inline void Command::set_other_message(const void* message_header, std::uint32_t message_header_bytes,
                                                         const void* payload, std::uint64_t payload_bytes) {
  const std::uint32_t room = wire::pad8(message_header_bytes);
  if (!inlines(message_header_bytes, payload_bytes)) {
    inlined = false;
    header = message_header;
    header_bytes = message_header_bytes;
    local = const_cast<void*>(payload);  // not written
    bytes = payload_bytes;
    return;
  }
  inlined = true;
  header_bytes = 0;
  bytes = room + payload_bytes;
  if (bytes == 0) return;
  // Zeros behind header and payload: the last word of each.
  if (room != 0) std::memset(packet + room - 8, 0, 8);
  std::memset(packet + wire::pad8(static_cast<std::uint32_t>(bytes)) - 8, 0, 8);
  base::copy_short(packet, message_header, message_header_bytes);
  base::copy_short(packet + room, payload, payload_bytes);
}

// Copies a packet of at most Command::kInlineBytes, in whole words: it ends with zeros up to a
// multiple of 8. No loop and no call: pieces of 16 bytes may overlap.
//
// The packet was written a moment ago. A load waits until a store that it needs has left the core
// if it needs another one as well, so two words that were written one by one are read one by one.
[[gnu::always_inline]] inline void copy_words(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return;
  }
  if (bytes == 16) [[likely]] {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::memcpy(&first, from, 8);
    std::memcpy(&second, from + 8, 8);
    asm("" : "+r"(first), "+r"(second));  // else the compiler makes one load of both
    std::memcpy(to, &first, 8);
    std::memcpy(to + 8, &second, 8);
    return;
  }
  const std::uint64_t end = (bytes + 7) & ~std::uint64_t{7};
  if (end <= 8) {
    if (end == 8) std::memcpy(to, from, 8);
    return;
  }
  base::copy_pieces(to, from, end);
}

// Writes the packet of a message, from `packet` or from header and payload. `to` needs room for
// packet_bytes(), and for zeros up to a multiple of 8 if it is inlined.
inline void write_packet(const Command& command, std::byte* to) {
  if (command.inlined) {
    copy_words(to, command.packet, command.bytes);
    return;
  }
  if (command.header_bytes != 0) {
    const std::uint32_t room = wire::pad8(command.header_bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, command.header, command.header_bytes);
    to += room;
  }
  base::copy_data(to, command.local, command.bytes);
}

}  // namespace heddle::transport
