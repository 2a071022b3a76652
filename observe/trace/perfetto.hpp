// Writes a trace as Perfetto's protobuf (https://perfetto.dev/docs/reference/trace-packet-proto):
// tracks, slices and instants on them, and flows between those. ui.perfetto.dev and trace_processor
// read these files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace heddle::observe::trace {

// Details of an event, shown when a user selects it.
struct Annotation {
  const char* name;
  std::variant<std::uint64_t, std::string> value;
};

struct Mark {
  std::string name;
  std::vector<Annotation> annotations{};
  std::uint64_t flow = 0;      // an arrow begins here; 0: none
  std::uint64_t flow_end = 0;  // one ends here
};

class PerfettoWriter {
 public:
  using Track = std::uint64_t;
  PerfettoWriter() = default;
  PerfettoWriter(const PerfettoWriter&) = delete;
  PerfettoWriter& operator=(const PerfettoWriter&) = delete;
  ~PerfettoWriter();

  base::Status open(const std::string& path);
  // Ends the file. Returns whether everything has been written, or the error. Call once.
  base::Status close();

  // `number` is unique among processes; `order` is where it stands among them.
  Track process(std::uint32_t number, const std::string& name);
  Track thread(std::uint32_t process, std::uint64_t number, const std::string& name);
  // A track under another one. Those of one parent and name are shown as one.
  Track track(Track parent, const std::string& name);

  // Nanoseconds. Slices of one track nest.
  void begin(Track track, std::int64_t ns, const Mark& mark) { event(track, ns, kBegin, &mark); }
  void end(Track track, std::int64_t ns) { event(track, ns, kEnd, nullptr); }
  void instant(Track track, std::int64_t ns, const Mark& mark) { event(track, ns, kInstant, &mark); }

  // Bytes that Perfetto passes over: the next ones of a sequence that the number names.
  static constexpr std::uint32_t kPacketField = 1;  // of Perfetto's Trace
  // of its TracePacket, which has none of that number
  static constexpr std::uint32_t kRecordingField = 0x8EDD1E;
  void embed(std::uint32_t number, std::span<const char> bytes);

 private:
  static constexpr std::int32_t kBegin = 1;
  static constexpr std::int32_t kEnd = 2;
  static constexpr std::int32_t kInstant = 3;

  void event(Track track, std::int64_t ns, std::int32_t type, const Mark* mark);
  Track next_track() { return ++tracks_; }
  void put(const std::string& packet);

  std::FILE* file_ = nullptr;
  std::string path_;
  bool failed_ = false;
  bool begun_ = false;
  std::uint64_t tracks_ = 0;
};

}  // namespace heddle::observe::trace
