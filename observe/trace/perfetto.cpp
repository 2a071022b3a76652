#include "observe/trace/perfetto.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <protozero/pbf_writer.hpp>
#include <system_error>
#include <utility>

namespace heddle::observe::trace {
namespace {

using protozero::pbf_writer;

// Numbers of fields, as Perfetto's .proto files have them.
namespace field {
constexpr std::uint32_t kPacket = PerfettoWriter::kPacketField;  // Trace
// TracePacket
constexpr std::uint32_t kTimestamp = 8;
constexpr std::uint32_t kSequence = 10;
constexpr std::uint32_t kTrackEvent = 11;
constexpr std::uint32_t kSequenceFlags = 13;
constexpr std::uint32_t kTrackDescriptor = 60;
// TrackDescriptor
constexpr std::uint32_t kUuid = 1;
constexpr std::uint32_t kTrackName = 2;
constexpr std::uint32_t kProcess = 3;
constexpr std::uint32_t kThread = 4;
constexpr std::uint32_t kParent = 5;
// ProcessDescriptor, ThreadDescriptor
constexpr std::uint32_t kPid = 1;
constexpr std::uint32_t kProcessName = 6;
constexpr std::uint32_t kTid = 2;
constexpr std::uint32_t kThreadName = 5;
// TrackEvent
constexpr std::uint32_t kAnnotation = 4;
constexpr std::uint32_t kType = 9;
constexpr std::uint32_t kTrack = 11;
constexpr std::uint32_t kName = 23;
constexpr std::uint32_t kFlow = 47;
constexpr std::uint32_t kFlowEnd = 48;
// DebugAnnotation
constexpr std::uint32_t kUint = 3;
constexpr std::uint32_t kString = 6;
constexpr std::uint32_t kAnnotationName = 10;
}  // namespace field

constexpr const char* kUnfinished = ".unfinished";
constexpr std::uint32_t kOneSequence = 1;
constexpr std::uint32_t kStateCleared = 1;

void write_annotation(pbf_writer& event, const Annotation& annotation) {
  pbf_writer to(event, field::kAnnotation);
  to.add_string(field::kAnnotationName, annotation.name);
  if (const auto* number = std::get_if<std::uint64_t>(&annotation.value)) {
    to.add_uint64(field::kUint, *number);
  } else {
    to.add_string(field::kString, std::get<std::string>(annotation.value));
  }
}

}  // namespace

PerfettoWriter::~PerfettoWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink((path_ + kUnfinished).c_str());
}

base::Status PerfettoWriter::open(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s cannot be written: it is a directory", path.c_str());
  }
  path_ = path;
  // Under its name when it is whole.
  file_ = std::fopen((path + kUnfinished).c_str(), "wb");
  if (file_ == nullptr) return base::fail_errno(HEDDLE_ERR_ARGUMENT, "%s cannot be written", path.c_str());
  return HEDDLE_DONE;
}

base::Status PerfettoWriter::close() {
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  const bool whole = closed && !failed_ && std::rename((path_ + kUnfinished).c_str(), path_.c_str()) == 0;
  if (whole) return HEDDLE_DONE;
  const base::Status status = base::fail_errno(HEDDLE_ERR_ARGUMENT, "%s was not written whole", path_.c_str());
  ::unlink((path_ + kUnfinished).c_str());
  return status;
}

void PerfettoWriter::put(const std::string& packet) {
  std::string framed;
  pbf_writer trace(framed);
  trace.add_message(field::kPacket, packet);
  failed_ = std::fwrite(framed.data(), 1, framed.size(), file_) != framed.size() || failed_;
}

PerfettoWriter::Track PerfettoWriter::process(std::uint32_t number, const std::string& name) {
  const Track uuid = next_track();
  std::string packet;
  {
    pbf_writer to(packet);
    pbf_writer descriptor(to, field::kTrackDescriptor);
    descriptor.add_uint64(field::kUuid, uuid);
    pbf_writer process(descriptor, field::kProcess);
    process.add_int32(field::kPid, static_cast<std::int32_t>(number));
    process.add_string(field::kProcessName, name);
  }
  put(packet);
  return uuid;
}

PerfettoWriter::Track PerfettoWriter::thread(std::uint32_t process, std::uint64_t number, const std::string& name) {
  const Track uuid = next_track();
  std::string packet;
  {
    pbf_writer to(packet);
    pbf_writer descriptor(to, field::kTrackDescriptor);
    descriptor.add_uint64(field::kUuid, uuid);
    pbf_writer thread(descriptor, field::kThread);
    thread.add_int32(field::kPid, static_cast<std::int32_t>(process));
    thread.add_int64(field::kTid, static_cast<std::int64_t>(number));
    thread.add_string(field::kThreadName, name);
  }
  put(packet);
  return uuid;
}

PerfettoWriter::Track PerfettoWriter::track(Track parent, const std::string& name) {
  const Track uuid = next_track();
  std::string packet;
  {
    pbf_writer to(packet);
    pbf_writer descriptor(to, field::kTrackDescriptor);
    descriptor.add_uint64(field::kUuid, uuid);
    descriptor.add_uint64(field::kParent, parent);
    descriptor.add_string(field::kTrackName, name);
  }
  put(packet);
  return uuid;
}

void PerfettoWriter::embed(std::uint32_t number, std::span<const char> bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 20;  // of a packet, which readers hold as a whole
  while (!bytes.empty()) {
    const std::span<const char> part = bytes.first(std::min(bytes.size(), kMost));
    std::string data;
    pbf_writer packet(data);
    {
      pbf_writer recording(packet, kRecordingField);
      recording.add_uint32(1, number);
      recording.add_bytes(2, part.data(), part.size());
    }
    put(data);
    bytes = bytes.subspan(part.size());
  }
}

void PerfettoWriter::event(Track track, std::int64_t ns, std::int32_t type, const Mark* mark) {
  std::string packet;
  {
    pbf_writer to(packet);
    to.add_uint64(field::kTimestamp, static_cast<std::uint64_t>(ns));
    to.add_uint32(field::kSequence, kOneSequence);
    if (!begun_) to.add_uint32(field::kSequenceFlags, kStateCleared);
    pbf_writer event(to, field::kTrackEvent);
    event.add_int32(field::kType, type);
    event.add_uint64(field::kTrack, track);
    if (mark != nullptr) {
      event.add_string(field::kName, mark->name);
      for (const Annotation& annotation : mark->annotations) write_annotation(event, annotation);
      if (mark->flow != 0) event.add_fixed64(field::kFlow, mark->flow);
      if (mark->flow_end != 0) event.add_fixed64(field::kFlowEnd, mark->flow_end);
    }
  }
  begun_ = true;
  put(packet);
}

}  // namespace heddle::observe::trace
