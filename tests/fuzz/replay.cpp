// Runs a fuzzer without libFuzzer: the files named on the command line, or seeded random inputs
// that grow from short to long and from zeroes to noise. Deterministic.
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.hpp"

namespace {

constexpr unsigned kRandomInputs = 20000;
constexpr std::size_t kLongest = 2048;

int run_files(int count, char** names) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(names[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", names[i]);
      return 1;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return run_files(argc - 1, argv + 1);
  std::mt19937_64 random(1);  // NOLINT: the same inputs every time
  std::vector<std::uint8_t> input;
  for (unsigned i = 0; i < kRandomInputs; ++i) {
    input.resize(random() % (1 + kLongest * i / kRandomInputs));
    // lengths and counts are small numbers mostly
    const unsigned zeroes = static_cast<unsigned>(random() % 4);
    for (std::uint8_t& byte : input) {
      byte = random() % 4 < zeroes ? std::uint8_t{0} : static_cast<std::uint8_t>(random());
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%u inputs\n", kRandomInputs);
  return 0;
}
