// Runs a fuzzer without libFuzzer, `fuzz_replay FUZZER [FILE…]`: on the files, or on seeded random
// inputs that grow from short to long and from zeroes to noise. Deterministic.
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

// HEDDLE_FUZZERS lists all of them; the function of each has its name.
#define FUZZER(name) extern "C" int name(const std::uint8_t* data, std::size_t size);
HEDDLE_FUZZERS
#undef FUZZER

namespace {

struct Fuzzer {
  std::string_view name;
  int (*take)(const std::uint8_t* data, std::size_t size);
};

#define FUZZER(name) {#name, name},
constexpr Fuzzer kFuzzers[] = {HEDDLE_FUZZERS};

constexpr unsigned kRandomInputs = 20000;
constexpr std::size_t kLongest = 2048;

int run_files(const Fuzzer& fuzzer, int count, char** names) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(names[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", names[i]);
      return 1;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    fuzzer.take(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  return 0;
}

int run_random(const Fuzzer& fuzzer) {
  std::mt19937_64 random(1);  // NOLINT: the same inputs every time
  std::vector<std::uint8_t> input;
  for (unsigned i = 0; i < kRandomInputs; ++i) {
    input.resize(random() % (1 + kLongest * i / kRandomInputs));
    // lengths and counts are small numbers mostly
    const unsigned zeroes = static_cast<unsigned>(random() % 4);
    for (std::uint8_t& byte : input) {
      byte = random() % 4 < zeroes ? std::uint8_t{0} : static_cast<std::uint8_t>(random());
    }
    fuzzer.take(input.data(), input.size());
  }
  std::printf("%u inputs\n", kRandomInputs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Fuzzer& fuzzer : kFuzzers) {
    if (argc < 2 || fuzzer.name != argv[1]) continue;
    return argc > 2 ? run_files(fuzzer, argc - 2, argv + 2) : run_random(fuzzer);
  }
  std::fprintf(stderr, "usage: fuzz_replay FUZZER [FILE...]; fuzzers:\n");
  for (const Fuzzer& fuzzer : kFuzzers) std::fprintf(stderr, "  %s\n", fuzzer.name.data());
  return 2;
}
