#include "observe/trace/picture.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "observe/trace/packed.hpp"
#include "observe/trace/process_picture.hpp"

namespace heddle::observe::trace {

base::Status draw(const std::vector<Process>& processes, const std::string& path, Drawn* drawn) {
  PerfettoWriter writer;
  if (const base::Status status = writer.open(path); status != HEDDLE_DONE) return status;
  std::uint32_t number = 0;
  for (const Process& process : processes) {
    const auto threads = read(process);
    if (!threads) return threads.status();
    ProcessPicture(process, ++number, writer).draw(*threads);
    if (const base::Status status = pack(process, number, writer); status != HEDDLE_DONE) return status;
    drawn->untraced += process.untraced;
    for (const Thread& thread : *threads) {
      drawn->records += thread.moments.size();
      for (const Moment& moment : thread.moments) drawn->records += moment.more;
      drawn->lost += thread.lost;
    }
  }
  return writer.close();
}

}  // namespace heddle::observe::trace
