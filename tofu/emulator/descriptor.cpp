#include "tofu/emulator/descriptor.hpp"

#include <cstring>

#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

using namespace coding;

constexpr unsigned kMtuShift = kPlaceBits;
constexpr unsigned kMtuUnit = 8;
constexpr unsigned kGapShift = 42;
constexpr unsigned kOperationShift = 50;
constexpr std::uint64_t kWideEdata = std::uint64_t{1} << 53U;
constexpr std::size_t kBufferBytes = 24;
static_assert(kMtuShift + 8 == kGapShift && kMtu / kMtuUnit < 256);

Code code_of(const Slot& slot) {
  return static_cast<Code>(slot.words[0] >> 16U & 0xFFU);
}
std::uint32_t length_of(const Slot& slot) {
  return static_cast<std::uint32_t>(slot.words[0] >> 32U & kMaxLength);
}

// Whether this is the last slot of a command of `slots` slots.
bool ends_command(const Slot& slot, unsigned slots) {
  if (slot.words[1] >> 56U != kTag) return false;
  const Code code = code_of(slot);
  if (code <= kBuffer || code >= kCodes) return false;
  const bool two = code == kCswap4 || code == kCswap8 || (code == kPiggyback && piggyback_slots(length_of(slot)) == 2);
  return two == (slots == 2);
}

Slot buffer_slot(const void* data, std::size_t length) {
  Slot slot{{word0(kBuffer, 0) | kTag << 56U, 0, 0, 0}};
  std::memcpy(&slot.words[1], data, length);
  return slot;
}

Opcode opcode_of(Code code) {
  switch (code) {
    case kPut:
      return Opcode::put;
    case kGet:
      return Opcode::get;
    case kPiggyback:
      return Opcode::piggyback;
    case kArmw4:
    case kArmw8:
      return Opcode::armw;
    case kCswap4:
    case kCswap8:
      return Opcode::cswap;
    default:
      return Opcode::nop;
  }
}

}  // namespace

detail::Rare detail::encode_rare(const Encoder& encoder, unsigned long flags, std::uint64_t edata,
                                 std::uint64_t word1) {
  if (const auto path = static_cast<std::uint8_t>(flags >> 28U & 15U); path != 0) {
    if (path > kPaths || !encoder.machine->path_coords(path, 0)) return {word1, UTOFU_ERR_INVALID_PATH_ID};
    word1 = (word1 & ~(PackedPlace{15} << kPathShift)) | PackedPlace{path} << kPathShift;
  }
  if (edata <= kMaxEdata) return {word1, UTOFU_SUCCESS};
  if (!encoder.strict) return {word1 | kWideEdata, UTOFU_SUCCESS};
  broken_rule("edata %llu has more than one byte; the hardware keeps one and says ERR_TCQ_LENGTH later",
              static_cast<unsigned long long>(edata));
  return {word1, UTOFU_ERR_INVALID_EDATA};
}

int encode_transfer(Code code, const Encoder& encoder, const Target& target, utofu_stadd_t local, const Blocks& blocks,
                    const Pace& pace, Slot* slots) {
  detail::DescriptorHead head{};
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  if (wrong_length(code, blocks.length)) return UTOFU_ERR_INVALID_SIZE;
  if (pace.mtu == 0 || pace.mtu > kMtu || pace.mtu % kMtuUnit != 0 || pace.gap > kMaxGap) return UTOFU_ERR_INVALID_ARG;
  head.word1 |= std::uint64_t{pace.mtu / kMtuUnit} << kMtuShift | std::uint64_t{pace.gap} << kGapShift;
  Slot slot{{head.word0 | word0(code, blocks.length), head.word1, target.stadd, local}};
  for (std::size_t block = 0; block < blocks.count; ++block) {
    slots[block] = slot;
    slot.words[2] += blocks.stride;
    slot.words[3] += blocks.stride;
  }
  return UTOFU_SUCCESS;
}

int encode_armw(const Encoder& encoder, const Target& target, int operation, std::uint64_t operand, unsigned bytes,
                Slot* slot) {
  detail::DescriptorHead head{};
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  if (operation < UTOFU_ARMW_OP_SWAP || operation > UTOFU_ARMW_OP_OR) return UTOFU_ERR_INVALID_OP;
  if (target.stadd % bytes != 0) return UTOFU_ERR_INVALID_STADD;
  slot->words = {head.word0 | word0(bytes == 4 ? kArmw4 : kArmw8, bytes),
                 head.word1 | static_cast<std::uint64_t>(operation) << kOperationShift, target.stadd, operand};
  return UTOFU_SUCCESS;
}

int encode_cswap(const Encoder& encoder, const Target& target, std::uint64_t compare, std::uint64_t value,
                 unsigned bytes, Slot* slots) {
  detail::DescriptorHead head{};
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  if (target.stadd % bytes != 0) return UTOFU_ERR_INVALID_STADD;
  slots[0] = buffer_slot(&compare, sizeof compare);
  slots[1].words = {head.word0 | word0(bytes == 4 ? kCswap4 : kCswap8, bytes), head.word1, target.stadd, value};
  return UTOFU_SUCCESS;
}

int encode_nop(unsigned long flags, Slot* slot) {
  if ((flags & ~detail::kKnownFlags) != 0) return UTOFU_ERR_INVALID_FLAGS;
  slot->words = {(flags & 0xFFFFU) | word0(kNop, 0), kTag << 56U, 0, 0};
  return UTOFU_SUCCESS;
}

int encode_piggyback(const Encoder& encoder, const Target& target, const void* data, std::size_t length, Slot* slots) {
  if (data == nullptr && length != 0) return UTOFU_ERR_INVALID_POINTER;
  if (length > kMaxPiggyback) return UTOFU_ERR_INVALID_SIZE;
  std::uint64_t last = 0;
  if (piggyback_slots(length) == 1) {
    if (length != 0) std::memcpy(&last, data, length);
    return encode_piggyback8(encoder, target, last, length, slots);
  }
  detail::DescriptorHead head{};
  if (const int status = detail::encode_head(encoder, target, &head); status != 0) return status;
  slots[0] = buffer_slot(data, length < kBufferBytes ? length : kBufferBytes);
  if (length > kBufferBytes) {
    std::memcpy(&last, static_cast<const std::byte*>(data) + kBufferBytes, length - kBufferBytes);
  }
  slots[1].words = {head.word0 | word0(kPiggyback, length), head.word1, target.stadd, last};
  return UTOFU_SUCCESS;
}

unsigned slots_of(const Slot& first) {
  if (code_of(first) == kBuffer) return first.words[0] >> 56U == kTag ? 2 : 0;
  return ends_command(first, 1) ? 1 : 0;
}

bool whole_commands(const Slot* slots, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned needed = slots_of(slots[i]);
    if (needed == 0) return false;
    if (needed == 2 && (++i == count || !ends_command(slots[i], 2))) return false;
  }
  return count != 0;
}

bool decode(const Machine& machine, const Slot& first, const Slot& second, CqCommand* command) {
  const unsigned slots = slots_of(first);
  const bool two = slots == 2;
  if (slots == 0 || (two && !ends_command(second, 2))) return false;
  const auto& words = (two ? second : first).words;
  const Code code = code_of(two ? second : first);
  *command = CqCommand{};
  command->opcode = opcode_of(code);
  command->slots = static_cast<std::uint8_t>(slots);
  command->edata = static_cast<std::uint8_t>(words[0] >> 56U);
  command->sps = static_cast<std::uint8_t>(words[0] >> 24U & 15U);
  command->flags = static_cast<std::uint32_t>(words[0] & 0xFFFFU);
  command->length = length_of(two ? second : first);
  const PackedPlace place = words[1] & ((PackedPlace{1} << kPlaceBits) - 1);
  const auto path = static_cast<std::uint8_t>(place >> kPathShift);
  command->path = path == 0 || path == kDefaultPath ? kNoPath : path;
  command->remote = machine.pack_id(without_path(place));
  command->armw_op = static_cast<std::uint8_t>(words[1] >> kOperationShift & 7U);
  command->gap = static_cast<std::uint8_t>(words[1] >> kGapShift & 0xFFU);
  if (const std::uint64_t mtu = words[1] >> kMtuShift & 0xFFU; mtu != 0) {
    command->mtu = static_cast<std::uint16_t>(mtu * kMtuUnit);
  }
  if ((words[1] & kWideEdata) != 0) command->error = UTOFU_ERR_TCQ_LENGTH;
  command->remote_stadd = words[2];
  command->local_stadd = words[3];
  command->operand = words[3];
  command->compare = two ? first.words[1] : 0;
  if (code == kPiggyback) {
    if (two) std::memcpy(command->inlined.data(), &first.words[1], kBufferBytes);
    std::memcpy(command->inlined.data() + (two ? kBufferBytes : 0), &words[3], sizeof words[3]);
  }
  return true;
}

}  // namespace tofu_emulator
