// Packed regions and transport keys: random bytes, and forgeries that are well formed. Through the
// C API on a job of one, with the shm transport: reading any unpacked region must not crash.
#include "fuzz.hpp"
#include "heddle/heddle.h"
#include "transport/shm/layout.hpp"
#include "transport/shm/region_key.hpp"
#include "wire/packet.hpp"

namespace {

using heddle::fuzz::require;

constexpr std::size_t kRegionBytes = 8192;

struct Job {
  heddle_context context{};
  heddle_worker worker{};
  heddle_region region{};
  heddle::wire::PackedRegion packed;

  Job() {
    require(heddle_context_join(nullptr, &context) == HEDDLE_DONE, heddle_last_error());
    require(heddle_worker_open(context, nullptr, &worker) == HEDDLE_DONE, heddle_last_error());
    require(heddle_region_alloc(context, kRegionBytes, &region) == HEDDLE_DONE, heddle_last_error());
    std::byte bytes[HEDDLE_PACKED_REGION_BYTES];
    std::size_t length = sizeof bytes;
    require(heddle_region_pack(region, bytes, &length) == HEDDLE_DONE, heddle_last_error());
    const auto decoded = heddle::wire::decode_region(std::span(bytes).first(length));
    require(decoded.ok(), heddle_last_error());
    packed = *decoded;
  }
};

// Unpacks, reads the two ends, gives it back. An error is a correct result as well.
void use(const Job& job, std::span<const std::byte> bytes) {
  heddle_remote_region remote{};
  const heddle_status status = heddle_region_unpack(job.context, bytes.data(), bytes.size(), &remote);
  if (status != HEDDLE_DONE) {
    require(status < 0 && heddle_last_error()[0] != '\0', "an error without a message");
    return;
  }
  std::uint64_t length = 0;
  require(heddle_remote_region_bytes(remote, &length) == HEDDLE_DONE, "length of an unpacked region");
  std::uint64_t word = 0;
  for (const std::uint64_t offset : {std::uint64_t{0}, length - sizeof word, length}) {
    const heddle_status got = heddle_try_get(job.worker, &word, sizeof word, {remote, offset}, nullptr);
    require(offset != length || got == HEDDLE_ERR_RANGE, "a get behind the end");
  }
  require(heddle_try_quiet(job.worker) != HEDDLE_AGAIN || heddle_worker_progress(job.worker) >= 0, "progress");
  require(heddle_remote_region_release(remote) == HEDDLE_DONE, "release");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Job job;
  heddle::fuzz::Input input(data, size);
  switch (input.take<std::uint8_t>() % 4) {
    case 0:
      use(job, input.rest());
      break;
    case 1: {  // well-formed bytes with any fields
      heddle::wire::PackedRegion lie = job.packed;
      const auto which = input.take<std::uint8_t>();
      if ((which & 1U) != 0) lie.job = input.take<std::uint64_t>();
      if ((which & 2U) != 0) lie.rank = input.take<std::uint32_t>();
      if ((which & 4U) != 0) lie.bytes = input.take<std::uint64_t>();
      if ((which & 8U) != 0) lie.region = input.take<std::uint64_t>();
      const auto key = input.bytes(lie.key.size());
      if (!key.empty() && (which & 16U) != 0) std::memcpy(lie.key.data(), key.data(), key.size());
      use(job, heddle::wire::encode(lie));
      break;
    }
    case 2: {  // a well-formed key that names another place in the segment, or none
      heddle::transport::MemoryKey key;
      std::memcpy(key.bytes.data(), job.packed.key.data(), key.bytes.size());
      const auto true_key = heddle::transport::shm::decode(key);
      require(true_key.ok(), heddle_last_error());
      heddle::transport::shm::RegionKey lie = *true_key;
      const auto which = input.take<std::uint8_t>();
      if ((which & 1U) != 0) lie.offset = input.take<std::uint64_t>();
      if ((which & 2U) != 0) lie.bytes = input.take<std::uint64_t>();
      if ((which & 4U) != 0) lie.id = input.take<std::uint64_t>();
      if ((which & 8U) != 0) lie.address = input.take<std::uint64_t>();
      heddle::wire::PackedRegion packed = job.packed;
      packed.bytes = lie.bytes;
      key = encode(lie);
      std::memcpy(packed.key.data(), key.bytes.data(), key.bytes.size());
      use(job, heddle::wire::encode(packed));
      break;
    }
    default: {
      heddle::transport::shm::Agreement mine;
      static_cast<void>(heddle::transport::shm::decode_card(input.rest(), mine, 0));
    }
  }
  return 0;
}
