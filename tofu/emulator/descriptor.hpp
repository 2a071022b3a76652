// Commands as programs post them and as the engine executes them. Programs post slots of 32 bytes.
// Slots are position independent, so that prepared ones can be posted repeatedly. The immediate
// calls and the prepare_* calls write slots with the same functions, which check every argument.
//
// word 0   flags of the call (bits 0-15 and 24-27 as they are), opcode in bits 16-23, length in
//          32-55, edata in 56-63
// word 1   target (PackedPlace with the path of the command or else of the id), mtu / 8 in bits
//          34-41 (0: the largest), gap in 42-49, atomic operation in 50-52, 53: edata had more than
//          a byte, kTag in 56-63
// word 2   remote steering address
// word 3   local steering address, or data, or operand
// A command of two slots has `buffer` as the opcode of the first slot. Words 1-3 of that slot hold
// the first 24 bytes of a piggyback or the value to compare with; its tag is in bits 56-63 of word
// 0. The flags of the last slot say whether the completion is reported.
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "tofu/emulator/machine.hpp"

namespace tofu_emulator {

struct alignas(8) Slot {
  std::array<std::uint64_t, 4> words;
};
static_assert(sizeof(Slot) == 32);

enum class Opcode : std::uint8_t { nop, put, piggyback, get, armw, cswap };

struct CqCommand {
  Opcode opcode = Opcode::nop;
  std::uint8_t slots = 1;
  std::uint8_t edata = 0;
  std::uint8_t sps = 0;
  std::uint8_t path = kNoPath;  // kNoPath: the default
  std::uint8_t armw_op = 0;     // enum utofu_armw_op
  std::uint8_t gap = 0;
  std::uint16_t mtu = kMtu;   // payload of a packet, a multiple of 8
  std::uint32_t flags = 0;    // UTOFU_ONESIDED_FLAG_* up to LOCAL_MRQ_NOTICE
  std::uint32_t length = 0;   // bytes; armw and cswap: 4 or 8
  int error = UTOFU_SUCCESS;  // UTOFU_ERR_TCQ_*: not to be executed; poll_tcq returns it
  utofu_vcq_id_t remote = 0;  // without a path
  utofu_stadd_t local_stadd = 0;
  utofu_stadd_t remote_stadd = 0;
  std::uint64_t operand = 0;            // armw: op_value; cswap: new_value
  std::uint64_t compare = 0;            // cswap: old_value
  std::array<std::byte, 32> inlined{};  // piggyback: the data

  [[nodiscard]] bool has(unsigned long flag) const { return (flags & flag) != 0; }
};

// The number of slots of the command that begins here: 1 or 2. 0: no command begins so.
unsigned slots_of(const Slot& first);
// Decodes the first slot and, if slots_of() returns 2, the second. False: this is no command of
// ours (then poll_tcq returns ERR_TCQ_DESC).
bool decode(const Machine& machine, const Slot& first, const Slot& second, CqCommand* command);
// Whether the arguments of utofu_post_toq are whole commands.
[[nodiscard]] bool whole_commands(const Slot* slots, std::size_t count);

// Whether the last slot of a command has UTOFU_ONESIDED_FLAG_DELAY_START.
constexpr bool is_delayed(const Slot& last) {
  return (last.words[0] & UTOFU_ONESIDED_FLAG_DELAY_START) != 0;
}

// The coding of slots, shared by the engine's side and the encoders.
namespace coding {
enum Code : std::uint8_t { kBuffer = 1, kNop, kPut, kPiggyback, kGet, kArmw4, kArmw8, kCswap4, kCswap8, kCodes };
inline constexpr std::uint64_t kTag = 0xD5;
constexpr std::uint64_t word0(Code code, std::uint64_t length) {
  return std::uint64_t{code} << 16U | length << 32U;
}
}  // namespace coding

// The constant part of all calls of a handle: the machine of the ids, and whether the mode is
// strict. It caches the last id, since most commands go to the same target as the one before.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Machine* its, bool is_strict) : machine(its), strict(is_strict), last_id_(its->pack_id(0)) {}

  [[nodiscard]] bool unpack(utofu_vcq_id_t id, PackedPlace* place) const {
    if (id == last_id_) [[likely]] {
      *place = last_place_;
      return true;
    }
    if (!machine->unpack_id(id, place)) return false;
    last_id_ = id;
    last_place_ = *place;
    return true;
  }

  const Machine* machine = nullptr;
  bool strict = false;

 private:
  // with last_place_: accessed by the thread that is in a call on the handle
  mutable utofu_vcq_id_t last_id_ = 0;
  mutable PackedPlace last_place_ = 0;
};

// The arguments that most calls share.
struct Target {
  utofu_vcq_id_t vcq_id;
  utofu_stadd_t stadd;
  std::uint64_t edata;
  unsigned long flags;
};
struct Pace {
  std::size_t mtu = kMtu;
  std::size_t gap = 0;
};
struct Blocks {
  std::size_t length;
  std::size_t stride = 0;
  std::size_t count = 1;
};

// Each function checks its arguments (0 or UTOFU_ERR_INVALID_*) and writes the slots it needs: one
// for each block of a transfer, one for armw and nop, two for cswap.
// `code`: kPut or kGet.
int encode_transfer(coding::Code code, const Encoder& encoder, const Target& target, utofu_stadd_t local,
                    const Blocks& blocks, const Pace& pace, Slot* slots);
// `bytes`: 4 or 8.
int encode_armw(const Encoder& encoder, const Target& target, int operation, std::uint64_t operand, unsigned bytes,
                Slot* slot);
int encode_cswap(const Encoder& encoder, const Target& target, std::uint64_t compare, std::uint64_t value,
                 unsigned bytes, Slot* slots);
int encode_nop(unsigned long flags, Slot* slot);
// One slot for up to 8 bytes, two for more.
int encode_piggyback(const Encoder& encoder, const Target& target, const void* data, std::size_t length, Slot* slots);
constexpr std::size_t piggyback_slots(std::size_t length) {
  return length <= 8 ? 1 : 2;
}

namespace detail {

inline constexpr unsigned long kKnownFlags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE |
                                             UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_PADDING |
                                             UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_DELAY_START |
                                             UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE |
                                             UTOFU_ONESIDED_FLAG_SPS(15) | UTOFU_ONESIDED_FLAG_PATH(15);

// Word 1 for a path in the flags or an edata of more than a byte. Passed by value, so that the
// usual path keeps everything in registers.
struct Rare {
  std::uint64_t word1;
  int status;
};
[[gnu::cold]] Rare encode_rare(const Encoder& encoder, unsigned long flags, std::uint64_t edata, std::uint64_t word1);

// Words 0 and 1, without the bits that depend on the kind of command.
struct DescriptorHead {
  std::uint64_t word0;
  std::uint64_t word1;
};
inline int encode_head(const Encoder& encoder, const Target& target, DescriptorHead* head) {
  PackedPlace place = 0;
  if (!encoder.unpack(target.vcq_id, &place)) return UTOFU_ERR_INVALID_VCQ_ID;
  if ((target.flags & ~kKnownFlags) != 0) return UTOFU_ERR_INVALID_FLAGS;
  head->word0 = target.flags | target.edata << 56U;
  head->word1 = place | coding::kTag << 56U;
  if ((target.flags >> 28U) != 0 || target.edata > kMaxEdata) [[unlikely]] {
    const Rare rare = encode_rare(encoder, target.flags, target.edata, head->word1);
    head->word1 = rare.word1;
    return rare.status;
  }
  return UTOFU_SUCCESS;
}

}  // namespace detail

// A put may be empty: it is then a notice, credits or a completion only. An empty get has no
// meaning.
constexpr bool wrong_length(coding::Code code, std::size_t length) {
  return code == coding::kGet ? length - 1 >= kMaxLength : length > kMaxLength;
}

// A put or get of one block with the default packet settings.
inline int encode_plain_transfer(coding::Code code, const Encoder& encoder, const Target& target, utofu_stadd_t local,
                                 std::size_t length, Slot* slot) {
  detail::DescriptorHead head;
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  if (wrong_length(code, length)) return UTOFU_ERR_INVALID_SIZE;
  slot->words = {head.word0 | coding::word0(code, length), head.word1, target.stadd, local};
  return UTOFU_SUCCESS;
}

// Up to 8 bytes by value, one slot: the shortest path, inlined into its caller.
inline int encode_piggyback8(const Encoder& encoder, const Target& target, std::uint64_t data, std::size_t length,
                             Slot* slot) {
  detail::DescriptorHead head;
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  if (length > 8) return UTOFU_ERR_INVALID_SIZE;
  slot->words = {head.word0 | coding::word0(coding::kPiggyback, length), head.word1, target.stadd, data};
  return UTOFU_SUCCESS;
}

}  // namespace tofu_emulator
