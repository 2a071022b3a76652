#include "limit/limit.hpp"

#include "limit/copies.hpp"
#include "limit/lines.hpp"

namespace heddle::bench::limit {

int run(harness::Session& session) {
  if (!session.wants("limit")) return 0;
  const int lines = run_lines(session);
  return lines != 0 ? lines : run_copies(session);
}

}  // namespace heddle::bench::limit
