// The environment variables of the emulator, UTOFU_EMU_*: what they say, checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tofu_emulator {

inline constexpr std::uint32_t kMaxProcesses = 256;

enum class Mode : std::uint8_t { plain, strict };
enum class Rules : std::uint8_t { end_job, report };  // what a broken rule of strict mode does

struct Settings {
  std::uint32_t process = 0;    // UTOFU_EMU_RANK
  std::uint32_t processes = 1;  // UTOFU_EMU_PROCESSES
  int world_fd = -1;            // UTOFU_EMU_FD: inherited; -1: none
  std::string world_path;       // UTOFU_EMU_WORLD; empty: none. With neither the world is this process alone
  // From here on all processes of a world must agree.
  std::array<std::uint8_t, 6> shape{1, 1, 1, 1, 1, 1};  // UTOFU_EMU_SHAPE: sizes of X Y Z A B C
  std::uint32_t per_node = 1;                           // UTOFU_EMU_PPN
  std::uint64_t seed = 1;                               // UTOFU_EMU_SEED
  Mode mode = Mode::plain;                              // UTOFU_EMU_MODE
  std::uint32_t toq_depth = 0;                          // UTOFU_EMU_TOQ, slots of 32 bytes, a power of two
  std::uint32_t mrq_depth = 0;                          // UTOFU_EMU_MRQ, notices, a power of two
  bool model = false;                                   // UTOFU_EMU_MODEL
  // To here.
  bool step = false;             // UTOFU_EMU_STEP
  Rules rules = Rules::end_job;  // UTOFU_EMU_RULES

  [[nodiscard]] bool strict() const { return mode == Mode::strict; }
};

// False: *problem says which variable is wrong, and what to do. Unknown variables of that prefix are wrong too. Pure but for
// getenv.
bool read_settings(Settings* settings, std::string* problem);

}  // namespace tofu_emulator
