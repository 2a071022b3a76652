#include "transport/common/rejections.hpp"

#include <algorithm>

namespace heddle::transport {

base::Status check_remote(const Command& command) {
  if (command.remote == nullptr) return base::fail(HEDDLE_ERR_ARGUMENT, "a command without remote memory");
  const std::uint64_t size = command.remote->bytes;
  if (command.offset <= size && command.bytes <= size - command.offset) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_RANGE, "%llu bytes at offset %llu are not inside a region of %llu bytes of rank %u",
                    static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(command.offset),
                    static_cast<unsigned long long>(size), command.rank);
}

base::Status check_atomic(const Command& command, std::uint64_t begin) {
  const bool wide = command.atomic_op >= HEDDLE_ADD64;
  if (command.atomic_op > HEDDLE_COMPARE_SWAP64 || (command.atomic_op & 7U) > HEDDLE_COMPARE_SWAP32)
    return base::fail(HEDDLE_ERR_ARGUMENT, "there is no atomic operation %u", command.atomic_op);
  if (command.bytes != (wide ? 8U : 4U)) {
    return base::fail(HEDDLE_ERR_SIZE, "an atomic operation on %llu bytes; this one works on %u",
                      static_cast<unsigned long long>(command.bytes), wide ? 8U : 4U);
  }
  if ((begin + command.offset) % command.bytes == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_ALIGNMENT, "an atomic operation at offset %llu; its word must be aligned to %llu",
                    static_cast<unsigned long long>(command.offset), static_cast<unsigned long long>(command.bytes));
}

base::Status check_message(const Command& command, std::uint32_t most, const char* transport) {
  const bool fits = command.inlined || (command.header_bytes <= kMaxHeaderBytes && command.bytes <= most &&
                                        command.packet_bytes() <= most);
  if (fits) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SIZE, "a message of %u + %llu bytes; the %s transport takes %u, of which %u header",
                    command.header_bytes, static_cast<unsigned long long>(command.bytes), transport, most,
                    kMaxHeaderBytes);
}

base::Status fail_key(const char* transport, std::uint32_t rank) {
  return base::fail(HEDDLE_ERR_PROTOCOL,
                    "the bytes are not the key of a region of rank %u for the %s transport; if that rank uses another "
                    "one, give all ranks the same HEDDLE_TRANSPORT and HEDDLE_TRANSPORTS",
                    rank, transport);
}

void Backlog::put(Token token, base::Status status, Event event) {
  slots_[(first_ + count_) % slots_.size()] = {token, status, event};
  ++count_;
}

std::size_t Backlog::drain(std::span<Completion> out) {
  const std::size_t n = std::min(out.size(), count_);
  for (std::size_t i = 0; i < n; ++i) {
    const Slot& slot = slots_[first_];
    out[i] = Completion{};
    out[i].event = slot.event;
    out[i].token = slot.token;
    out[i].status = slot.status;
    first_ = (first_ + 1) % slots_.size();
  }
  count_ -= n;
  return n;
}

}  // namespace heddle::transport
