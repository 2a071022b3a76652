// The environment variables of the emulator, UTOFU_EMU_*, in one table: what they say, checked.
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
inline constexpr std::uint32_t kMostDepth = 1U << 21U;  // of the queues that the hardware has

enum class Mode : std::uint8_t { plain, strict };
// How identifiers are laid out. vendor: as on Fugaku, where programs take them apart; random: so
// that none can.
enum class Numbering : std::uint8_t { of_mode, vendor, random };
// what a broken rule of strict mode does: "abort", "report"
enum class Rules : std::uint8_t { end_job, report };

using Shape = std::array<std::uint8_t, 6>;  // nodes along X Y Z A B C
inline constexpr Shape kLargestShape{32, 32, 32, 2, 3, 2};

struct Settings {
  // UTOFU_EMU_RANK; with UTOFU_EMU_WORLD alone: what an MPI's launcher says
  std::uint32_t process = 0;
  std::uint32_t processes = 1;  // UTOFU_EMU_PROCESSES; likewise
  int world_fd = -1;            // UTOFU_EMU_FD: inherited; -1: none
  // UTOFU_EMU_WORLD; empty: none. With neither the world is this process alone
  std::string world_path;
  // From here on all processes of a world must agree.
  Shape shape{};                // UTOFU_EMU_SHAPE; not said: the smallest that holds the processes
  std::uint32_t per_node = 1;   // UTOFU_EMU_PPN
  std::uint64_t seed = 1;       // UTOFU_EMU_SEED
  Mode mode = Mode::plain;      // UTOFU_EMU_MODE
  std::uint32_t toq_depth = 0;  // UTOFU_EMU_TOQ, slots of 32 bytes, a power of two
  std::uint32_t mrq_depth = 0;  // UTOFU_EMU_MRQ, notices, a power of two
  // UTOFU_EMU_NUMBERING; not said: plain mode's is vendor, strict mode's random
  Numbering numbering = Numbering::of_mode;
  bool model = false;     // UTOFU_EMU_MODEL: 1 or 2
  bool spinners = false;  // 2: who waits for a VCQ that others use holds them up
  // To here.
  bool step = false;              // UTOFU_EMU_STEP
  bool one_thread = false;        // UTOFU_EMU_ONE_THREAD
  std::uint32_t watchdog_s = 10;  // UTOFU_EMU_WATCHDOG; 0: none
  Rules rules = Rules::end_job;   // UTOFU_EMU_RULES

  [[nodiscard]] bool strict() const { return mode == Mode::strict; }
};

struct SettingVariable {
  const char* name;
  const char* accepted;  // what it may be, for messages
  const char* help;
  bool (*parse)(std::string_view text, Settings* settings);
};
std::span<const SettingVariable> setting_variables();

// False: *problem says which variable is wrong, and what to do. Unknown variables of that prefix
// are wrong too. Pure but for getenv.
bool read_settings(Settings* settings, std::string* problem);

// The same of these variables; other names are skipped.
bool parse_settings(const std::map<std::string, std::string>& variables, Settings* settings, std::string* problem);

// The smallest 1x1x1xAxBxC, or then XxYxZx2x3x2, that has `nodes` nodes.
Shape smallest_shape(std::uint32_t nodes);

}  // namespace tofu_emulator
