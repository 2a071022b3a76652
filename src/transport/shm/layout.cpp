#include "transport/shm/layout.hpp"

#include <unistd.h>

#include <cstring>
#include <iterator>

namespace heddle::transport::shm {
namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

// Each length takes a message of a power of two with its header.
std::uint64_t ring_bytes_for(std::uint32_t ranks) {
  constexpr std::uint64_t kLengths[] = {132U << 10, 68U << 10, 36U << 10};
  // to all others together, of one worker to one of each
  constexpr std::uint64_t kMost = 4352U << 10;
  for (const std::uint64_t bytes : kLengths) {
    if (bytes * (ranks - 1) <= kMost) return bytes;
  }
  return kLengths[std::size(kLengths) - 1];
}

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::vector<std::byte> encode_card(const Agreement& agreement) {
  std::vector<std::byte> bytes(sizeof agreement);
  std::memcpy(bytes.data(), &agreement, sizeof agreement);
  return bytes;
}

base::Result<Agreement> decode_card(std::span<const std::byte> bytes, const Agreement& mine, std::uint32_t rank) {
  Agreement theirs;
  if (bytes.size() < 2 * sizeof(std::uint32_t)) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has %zu bytes; is it of another transport?", rank,
                      bytes.size());
  }
  std::memcpy(static_cast<void*>(&theirs), bytes.data(), 2 * sizeof(std::uint32_t));
  if (theirs.magic != mine.magic) {
    return base::fail(HEDDLE_ERR_PROTOCOL,
                      "the card of rank %u is not one of the shm transport; set HEDDLE_TRANSPORT "
                      "alike in all ranks",
                      rank);
  }
  if (theirs.version != mine.version) return disagree("the layout version", rank, theirs.version, mine.version);
  if (bytes.size() != sizeof theirs) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u has %zu bytes instead of %zu", rank, bytes.size(),
                      sizeof theirs);
  }
  std::memcpy(static_cast<void*>(&theirs), bytes.data(), sizeof theirs);
  if (theirs.size != mine.size) return disagree("the size of the job", rank, theirs.size, mine.size);
  if (theirs.max_workers != mine.max_workers) {
    return disagree("HEDDLE_MAX_WORKERS", rank, theirs.max_workers, mine.max_workers);
  }
  if (theirs.ring_bytes != mine.ring_bytes) {
    return disagree("HEDDLE_SHM_RING_BYTES", rank, theirs.ring_bytes, mine.ring_bytes);
  }
  if (const base::Status status = check_agreed(theirs.agreed, mine.agreed, rank); status != HEDDLE_DONE) return status;
  // Sizes of the peer's own pool, bounded so that computing with them cannot overflow.
  if (theirs.bounce_chunks > kMaxBounceChunks || theirs.bounce_chunk_bytes > kMaxBounceChunkBytes) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the card of rank %u describes an impossible bounce pool", rank);
  }
  if (theirs.line != mine.line) return disagree("the cache line of the build", rank, theirs.line, mine.line);
  return theirs;
}

Layout::Layout(const Agreement& agreement)
    : size(agreement.size),
      max_workers(agreement.max_workers),
      sender_words((size + 63) / 64),
      worker_stride(sizeof(WorkerEntry) + round_up(sender_words * sizeof(std::uint64_t), kLine)),
      words_at(sizeof(ControlHeader)),
      workers_at(words_at + round_up(size * sizeof(std::uint64_t), kLine)),
      slots_at(round_up(workers_at + max_workers * worker_stride, page_bytes())),
      rings_at(round_up(slots_at + std::uint64_t{max_workers} * kSmallSlots * sizeof(SmallSlot), page_bytes())),
      max_rings(std::uint64_t{size} * max_workers * max_workers),
      control_bytes(round_up(rings_at + max_rings * sizeof(RingEntry), page_bytes())),
      ring_bytes(static_cast<std::uint32_t>(agreement.ring_bytes)),
      ring_capacity(queue::ring_capacity(agreement.ring_bytes)) {}

}  // namespace heddle::transport::shm
