// The environment variables of the emulator, UTOFU_EMU_*, in one table, and their checked values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tofu_emulator {

inline constexpr std::uint32_t kMaxProcesses = 256;
inline constexpr std::uint32_t kMaxPerNode = 48;
inline constexpr std::uint32_t kMostDepth = 1U << 21U;  // of the hardware's queues

enum class Mode : std::uint8_t { plain, strict };
// The layout of identifiers. vendor: as on Fugaku, where programs decompose them; random: so that
// no program can.
enum class Numbering : std::uint8_t { of_mode, vendor, random };
// the effect of a broken rule in strict mode: "abort", "report"
enum class Rules : std::uint8_t { end_job, report };

using Shape = std::array<std::uint8_t, 6>;  // nodes along X Y Z A B C
inline constexpr Shape kLargestShape{32, 32, 32, 2, 3, 2};

struct EmulatorSettings {
  // UTOFU_EMU_RANK; with UTOFU_EMU_WORLD alone: the rank given by an MPI launcher
  std::uint32_t process = 0;
  std::uint32_t processes = 1;  // UTOFU_EMU_PROCESSES, or from the MPI launcher
  int world_fd = -1;            // UTOFU_EMU_FD: inherited; -1: none
  // UTOFU_EMU_WORLD; empty: none. With neither, the world is this process only
  std::string world_path;
  // From here on, all processes of a world must agree.
  Shape shape{};                // UTOFU_EMU_SHAPE; unset: the smallest that holds the processes
  std::uint32_t per_node = 1;   // UTOFU_EMU_PPN
  std::uint64_t seed = 1;       // UTOFU_EMU_SEED
  Mode mode = Mode::plain;      // UTOFU_EMU_MODE
  std::uint32_t toq_depth = 0;  // UTOFU_EMU_TOQ, slots of 32 bytes, a power of two
  std::uint32_t mrq_depth = 0;  // UTOFU_EMU_MRQ, notices, a power of two
  // UTOFU_EMU_NUMBERING; unset: vendor in plain mode, random in strict mode
  Numbering numbering = Numbering::of_mode;
  bool model = false;     // UTOFU_EMU_MODEL: 1 or 2
  bool spinners = false;  // 2: threads that wait for a VCQ in use delay the others
  // Up to here.
  bool step = false;              // UTOFU_EMU_STEP
  bool one_thread = false;        // UTOFU_EMU_ONE_THREAD
  std::uint32_t watchdog_s = 10;  // UTOFU_EMU_WATCHDOG; 0: none
  Rules rules = Rules::end_job;   // UTOFU_EMU_RULES

  [[nodiscard]] bool strict() const { return mode == Mode::strict; }
};

struct SettingVariable {
  const char* name;
  const char* accepted;  // accepted values, for messages to the user
  const char* help;
  bool (*parse)(std::string_view text, EmulatorSettings* settings);
};
std::span<const SettingVariable> setting_variables();

// False: *problem names the wrong variable and the remedy. Unknown variables with that prefix are
// wrong too. Pure, except for getenv.
bool read_settings(EmulatorSettings* settings, std::string* problem);

// The same for these variables; other names are ignored.
bool parse_settings(const std::map<std::string, std::string>& variables, EmulatorSettings* settings,
                    std::string* problem);

// The smallest shape 1x1x1xAxBxC, or else XxYxZx2x3x2, with at least `nodes` nodes.
Shape smallest_shape(std::uint32_t nodes);

}  // namespace tofu_emulator
