// `heddle bench` and `heddle report`: the commands of heddle-bench, which `heddle` starts.
#pragma once

namespace heddle::bench {

// argv[0] is "bench"; the exit status: 0, 1 (a measurement failed), 2
// (arguments).
int main(int argc, char** argv);

// argv[0] is "report".
int report_main(int argc, char** argv);

}  // namespace heddle::bench
