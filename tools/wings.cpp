#include "tools/wings.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tools/run/beside.hpp"

namespace heddle::tools {

int become(const WingCommand& command, int argc, char** argv) {
  const std::string folder = run::beside_program(command.in_build, "heddle", command.program);
  if (folder.empty()) {
    std::fprintf(stderr, "heddle %s: %s is not installed beside this program: it was left out when Heddle was built\n",
                 command.name, command.program);
    return 1;
  }
  std::error_code error;
  std::string heddle = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string program = folder + '/' + command.program;
  std::vector<char*> words{heddle.data()};
  for (int i = 0; i < argc; ++i) words.push_back(argv[i]);
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  std::fprintf(stderr, "heddle %s: cannot start %s: %s\n", command.name, program.c_str(), std::strerror(errno));
  return 1;
}

}  // namespace heddle::tools
