// Commands: as programs post them (slots of 32 bytes, position independent, so that prepared ones can be posted again and
// again), and as the engine takes them.
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

struct alignas(8) Slot {
  std::array<std::uint64_t, 4> words;
};
static_assert(sizeof(Slot) == 32);

enum class Opcode : std::uint8_t { nop, put, piggyback, get, armw, cswap };

struct Command {
  Opcode opcode = Opcode::nop;
  std::uint8_t slots = 1;
  std::uint8_t edata = 0;
  std::uint8_t sps = 0;
  std::uint8_t path = 0xFF;   // kNoPath: the default
  std::uint8_t armw_op = 0;   // enum utofu_armw_op
  std::uint16_t mtu = 1920;   // payload of a packet, a multiple of 8
  std::uint32_t flags = 0;    // UTOFU_ONESIDED_FLAG_* up to LOCAL_MRQ_NOTICE
  std::uint32_t length = 0;   // bytes; armw and cswap: 4 or 8
  int error = UTOFU_SUCCESS;  // UTOFU_ERR_TCQ_*: not to be executed; what poll_tcq says of it
  utofu_vcq_id_t remote = 0;  // without a path
  utofu_stadd_t local_stadd = 0;
  utofu_stadd_t remote_stadd = 0;
  std::uint64_t operand = 0;            // armw: op_value; cswap: new_value
  std::uint64_t compare = 0;            // cswap: old_value
  std::array<std::byte, 32> inlined{};  // piggyback: the data

  [[nodiscard]] bool has(unsigned long flag) const { return (flags & flag) != 0; }
};

// How many slots the command takes that begins here: 1 or 2. 0: no descriptor begins so.
unsigned slots_of(const Slot& first);
// The first slot and, if slots_of() says 2, the second. False: they are no command of ours (then poll_tcq says ERR_TCQ_DESC).
bool decode(const Slot& first, const Slot& second, Command* command);

}  // namespace tofu_emulator
