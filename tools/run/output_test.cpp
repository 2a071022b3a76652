#include "tools/run/output.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <thread>

#include "base/clock.hpp"

namespace heddle::tools::run::output_test {
namespace {

class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  void write(const std::string& text) {
    ASSERT_EQ(::write(writing.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string read() {
    std::string text(1U << 20, '\0');
    const ssize_t got = ::read(reading.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }
  base::Fd reading;
  base::Fd writing;
};

TEST(output, lines_are_passed_whole_with_their_tag) {
  Pipe from;
  Pipe to;
  Sink sink(to.writing.get());
  TaggedStream stream(std::move(from.reading), 12, &sink);
  from.write("one\ntw");
  stream.serve();
  EXPECT_EQ(to.read(), "[12] one\n");
  from.write("o\n\nthree");
  stream.serve();
  EXPECT_EQ(to.read(), "[12] two\n[12] \n");
  from.writing.reset();
  stream.serve();
  EXPECT_EQ(stream.fd(), -1);
  sink.flush();
  EXPECT_EQ(to.read(), "[12] three\n");
}

TEST(output, a_reader_that_stops_reading_blocks_nobody_and_loses_nothing) {
  Pipe from;
  Pipe to;
  std::optional<Sink> sink(to.writing.get());
  TaggedStream stream(std::move(from.reading), 0, &*sink);
  const std::string line(999, 'x');
  std::size_t lines = 0;
  while (stream.readable_fd() >= 0) {
    ASSERT_LT(lines, 100'000U) << "what waits for the reader grows without limit";
    for (int i = 0; i < 50; ++i, ++lines) from.write(line + "\n");
    stream.serve();  // returns although nobody reads the sink
  }
  from.writing.reset();
  std::size_t read = 0;
  while (sink->waiting() || stream.fd() >= 0) {
    read += to.read().size();
    stream.serve();
  }
  sink->flush();
  sink.reset();
  to.writing.reset();
  for (std::string more = to.read(); !more.empty(); more = to.read()) read += more.size();
  EXPECT_EQ(read, lines * (4 + line.size() + 1));
}

TEST(output, a_sink_does_not_block_and_leaves_the_flags_of_others_alone) {
  const Pipe to;
  const Sink sink(to.writing.get());
  EXPECT_NE(sink.fd(), to.writing.get());
  EXPECT_NE(::fcntl(sink.fd(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(to.writing.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(output, a_reader_that_never_comes_back_is_waited_for_once_and_not_for_long) {
  const Pipe to;
  Sink sink(to.writing.get());
  sink.add(std::string(300'000, 'x'));
  base::SystemClock clock;
  const std::uint64_t begin = clock.now_ns();
  ReaderPatience none{-1, 0, ReaderPatience::Over::by_signal};
  sink.finish(&none);
  const std::uint64_t once = clock.now_ns() - begin;
  EXPECT_GE(once, Sink::kPatienceNs);
  EXPECT_LT(once, 3 * Sink::kPatienceNs);
  EXPECT_FALSE(sink.waiting());
  EXPECT_TRUE(sink.closed());
  EXPECT_GT(sink.dropped(), 200'000U);
  EXPECT_LT(sink.dropped(), 300'000U);
  sink.add("more");
  sink.finish(&none);
  EXPECT_LT(clock.now_ns() - begin, once + Sink::kPatienceNs);
}

TEST(output, a_slow_reader_loses_nothing_at_the_end) {
  Pipe to;
  std::size_t read = 0;
  std::thread reader([&] {
    for (std::string more = to.read(); !more.empty(); more = to.read()) {
      read += more.size();
      ::usleep(30'000);
    }
  });
  {
    Sink sink(to.writing.get());
    sink.add(std::string(1'000'000, 'x'));
    ReaderPatience none{-1, 0, ReaderPatience::Over::by_signal};
    sink.finish(&none);
    EXPECT_EQ(sink.dropped(), 0U);
  }
  to.writing.reset();
  reader.join();
  EXPECT_EQ(read, 1'000'000U);
}

TEST(output, a_reader_may_pause_for_long_when_nothing_presses) {
  Pipe to;
  std::size_t read = 0;
  std::thread reader([&] {
    ::usleep(Sink::kPatienceNs / 1000 + 500'000);
    for (std::string more = to.read(); !more.empty(); more = to.read()) read += more.size();
  });
  {
    Sink sink(to.writing.get());
    sink.add(std::string(300'000, 'x'));
    ReaderPatience patience;
    sink.finish(&patience);
    EXPECT_EQ(sink.dropped(), 0U);
    EXPECT_EQ(patience.over, ReaderPatience::Over::no);
  }
  to.writing.reset();
  reader.join();
  EXPECT_EQ(read, 300'000U);
}

TEST(output, a_reader_that_goes_away_is_not_waited_for) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe to;
  Sink sink(to.writing.get());
  sink.add(std::string(300'000, 'x'));
  std::thread reader([&] {
    ::usleep(50'000);
    to.reading.reset();
  });
  ReaderPatience patience;
  sink.finish(&patience);
  reader.join();
  EXPECT_TRUE(sink.closed());
  EXPECT_EQ(sink.error(), EPIPE);
  EXPECT_FALSE(sink.failed()) << "it has read what it wanted";
  EXPECT_EQ(patience.over, ReaderPatience::Over::no);
}

TEST(output, patience_ends_with_a_signal_and_with_the_time) {
  base::SystemClock clock;
  for (const bool by_signal : {true, false}) {
    const Pipe to;
    Pipe signals;
    Sink sink(to.writing.get());
    sink.add(std::string(300'000, 'x'));
    const std::uint64_t begin = clock.now_ns();
    ReaderPatience patience;
    patience.signals = signals.reading.get();
    if (by_signal) {
      signals.write("!");
    } else {
      patience.until_ns = begin + 300'000'000;
    }
    sink.finish(&patience);
    EXPECT_EQ(patience.over, by_signal ? ReaderPatience::Over::by_signal : ReaderPatience::Over::by_time);
    EXPECT_GE(clock.now_ns() - begin, Sink::kPatienceNs + (by_signal ? 0 : 300'000'000));
    EXPECT_LT(clock.now_ns() - begin, 3 * Sink::kPatienceNs);
    EXPECT_GT(sink.dropped(), 200'000U);
  }
}

TEST(output, who_goes_on_writing_after_the_end_is_not_listened_to_for_ever) {
  Pipe from;
  const base::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Sink sink(null.get());
  TaggedStream stream(std::move(from.reading), 0, &sink);
  std::thread writer([&] {
    ::signal(SIGPIPE, SIG_IGN);
    const std::string text(4096, '\n');
    while (::write(from.writing.get(), text.data(), text.size()) > 0) {
    }
  });
  ReaderPatience patience;
  stream.drain(&patience);
  EXPECT_EQ(stream.fd(), -1);
  writer.join();
}

}  // namespace
}  // namespace heddle::tools::run::output_test
