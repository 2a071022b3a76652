// For tests: the contents of a file of Perfetto's protobuf.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

namespace heddle::observe::trace {

struct SeenTrack {
  std::string name;  // of a process or thread: its own
  std::uint64_t parent = 0;
  std::int64_t process = 0;  // not 0: of a process or a thread
  std::int64_t thread = 0;
};

struct SeenEvent {
  std::uint64_t track = 0;
  std::uint64_t ns = 0;
  std::int64_t type = 0;  // 1: begin, 2: end, 3: instant
  std::string name;
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string, std::string> texts;
  std::vector<std::uint64_t> flows;
  std::vector<std::uint64_t> flow_ends;
};

struct Seen {
  std::map<std::uint64_t, SeenTrack> tracks;
  std::vector<SeenEvent> events;
};

inline void see_annotation(protozero::pbf_reader annotation, SeenEvent* event) {
  std::string name;
  std::string text;
  std::uint64_t number = 0;
  bool is_text = false;
  while (annotation.next()) {
    if (annotation.tag() == 10) {
      name = annotation.get_string();
    } else if (annotation.tag() == 3) {
      number = annotation.get_uint64();
    } else if (annotation.tag() == 6) {
      text = annotation.get_string();
      is_text = true;
    } else {
      annotation.skip();
    }
  }
  is_text ? void(event->texts[name] = text) : void(event->numbers[name] = number);
}

inline SeenEvent see_event(protozero::pbf_reader packet, std::uint64_t ns) {
  SeenEvent event;
  event.ns = ns;
  while (packet.next()) {
    switch (packet.tag()) {
      case 4:
        see_annotation(packet.get_message(), &event);
        break;
      case 9:
        event.type = packet.get_int32();
        break;
      case 11:
        event.track = packet.get_uint64();
        break;
      case 23:
        event.name = packet.get_string();
        break;
      case 47:
        event.flows.push_back(packet.get_fixed64());
        break;
      case 48:
        event.flow_ends.push_back(packet.get_fixed64());
        break;
      default:
        packet.skip();
    }
  }
  return event;
}

inline void see_track(protozero::pbf_reader descriptor, Seen* seen) {
  std::uint64_t uuid = 0;
  SeenTrack track;
  while (descriptor.next()) {
    switch (descriptor.tag()) {
      case 1:
        uuid = descriptor.get_uint64();
        break;
      case 2:
        track.name = descriptor.get_string();
        break;
      case 3:
      case 4: {
        protozero::pbf_reader who = descriptor.get_message();
        while (who.next()) {
          if (who.tag() == 1) {
            track.process = who.get_int32();
          } else if (who.tag() == 2) {
            track.thread = who.get_int64();
          } else if (who.tag() == 5 || who.tag() == 6) {
            track.name = who.get_string();
          } else {
            who.skip();
          }
        }
        break;
      }
      case 5:
        track.parent = descriptor.get_uint64();
        break;
      default:
        descriptor.skip();
    }
  }
  seen->tracks[uuid] = track;
}

// Throws protozero::exception: it is not well formed.
inline Seen see(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Seen seen;
  protozero::pbf_reader trace(bytes);
  while (trace.next(1)) {
    protozero::pbf_reader packet = trace.get_message();
    std::uint64_t ns = 0;
    while (packet.next()) {
      if (packet.tag() == 8) {
        ns = packet.get_uint64();
      } else if (packet.tag() == 11) {
        seen.events.push_back(see_event(packet.get_message(), ns));
      } else if (packet.tag() == 60) {
        see_track(packet.get_message(), &seen);
      } else {
        packet.skip();
      }
    }
  }
  return seen;
}

}  // namespace heddle::observe::trace
