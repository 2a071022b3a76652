// `heddle bench` and `heddle report`, for the table of subcommands of the heddle tool.
#pragma once

namespace heddle::bench {

// argv[0] is "bench", as the tool hands it over; the exit status: 0, 1 (a measurement failed), 2
// (arguments).
int main(int argc, char** argv);

// argv[0] is "report".
int report_main(int argc, char** argv);

}  // namespace heddle::bench
