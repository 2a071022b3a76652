// The main function of a program with which the tests of a folder start all their ranks
// (heddle_test_ranks of cmake/heddle_test.cmake). It runs the main function of the rank whose name
// it is called by. HEDDLE_RANKS lists these, each with the language of its source.
#include <cstdio>
#include <string_view>

#define HEDDLE_RANK_C(name) extern "C" int name##_main(int argc, char** argv);
#define HEDDLE_RANK_CXX(name) int name##_main(int argc, char** argv);
HEDDLE_RANKS
#undef HEDDLE_RANK_C
#undef HEDDLE_RANK_CXX

namespace {

struct Rank {
  std::string_view name;
  int (*main)(int argc, char** argv);
};

#define HEDDLE_RANK_C(name) {#name, name##_main},
#define HEDDLE_RANK_CXX(name) {#name, name##_main},
// The end has no main function: a tree may be without ranks.
constexpr Rank kRanks[] = {HEDDLE_RANKS{"", nullptr}};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const Rank* rank = kRanks; rank->main != nullptr; ++rank) {
    if (rank->name == name) return rank->main(argc, argv);
  }
  std::fprintf(stderr, "call this program by one of its links:\n");
  for (const Rank* rank = kRanks; rank->main != nullptr; ++rank) std::fprintf(stderr, "  %s\n", rank->name.data());
  return 2;
}
