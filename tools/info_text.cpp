// The facts as text for people.

#include <cstdio>
#include <utility>

#include "tools/info.hpp"

namespace heddle::tools {

namespace {

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

// "1 core", "2 cores".
std::string count_text(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

void print_version(const Facts& facts) {
  std::printf("heddle %s\n  compiler         %s\n  build            %s\n", facts.heddle.c_str(), facts.compiler.c_str(),
              facts.build.c_str());
}

void print_machine(const Facts& facts) {
  if (!facts.machine) {
    std::printf("\nmachine\n  unknown: %s\n", facts.machine_problem.c_str());
    return;
  }
  const base::Topology& topology = *facts.machine;
  std::printf("\nmachine (as %s tells)\n", topology.source);
  if (!topology.remark.empty()) std::printf("  without hwloc    %s\n", topology.remark.c_str());
  if (!topology.processor.empty()) std::printf("  processor        %s\n", topology.processor.c_str());
  std::printf("  packages         %u\n  NUMA nodes       %u\n", topology.packages, topology.numa_nodes);
  std::printf("  cores            %zu, %s (those this process may use)\n", topology.cores.size(),
              count_text(topology.hardware_threads(), "hardware thread").c_str());
  for (const base::Cache& cache : topology.caches) {
    const char* kind = cache.kind == 'd' ? " data" : cache.kind == 'i' ? " instructions" : "";
    std::printf("  L%u%-14s %u x %s, shared by %s, lines of %u bytes\n", cache.level, kind, cache.count,
                size_text(cache.bytes).c_str(), count_text(cache.shared_by, "core").c_str(), cache.line_bytes);
  }
}

void print_engine(const Facts& facts) {
  std::printf("\nengine\n  sharing modes    %s\n", facts.modes.c_str());
  std::printf("  hand-over        %s\n", facts.hand_over
                                             ? "yes: HEDDLE_PROGRESS helps exclusive workers, at no barrier of theirs"
                                             : "no, this kernel has no membarrier: exclusive workers are not helped");
}

std::string large_text(const transport::Capabilities& can) {
  if (can.fetch_bytes == 0) return "in parts";
  return "fetched by the receiver above " + size_text(can.fetch_bytes) + " bytes (HEDDLE_AM_EAGER_BYTES)";
}

const char* sleeping_text(transport::Sleeping sleeping) {
  switch (sleeping) {
    case transport::Sleeping::impossible:
      return "no: it must be polled";
    case transport::Sleeping::fenced:
      return "yes, and messages between such processes cost a fence";
    case transport::Sleeping::free:
      return "yes, at no cost to senders";
  }
  return "";
}

void print_transport(const TransportFacts& facts) {
  std::printf("\ntransport %s: %s\n", facts.name.c_str(), facts.help.c_str());
  if (!facts.problem.empty()) {
    std::printf("  not available: %s\n", facts.problem.c_str());
    return;
  }
  const transport::Capabilities& can = facts.can;
  if (facts.set_up != can.name) std::printf("  set up as        %s\n", facts.set_up.c_str());
  std::printf("  commands         %s\n", joined(opcode_names(can.opcodes)).c_str());
  std::printf("  direct memory    %s\n", can.direct ? "yes" : "no");
  std::printf("  ordered messages %s\n", can.ordered_messages ? "yes" : "no");
  std::printf("  largest message  %s bytes\n", size_text(can.max_message).c_str());
  std::printf("  largest transfer %s bytes\n",
              can.max_transfer == UINT64_MAX ? "any number of" : size_text(can.max_transfer).c_str());
  std::printf("  large messages   %s\n", large_text(can).c_str());
  std::printf("  workers          %u per process\n", can.max_workers);
  std::printf("  sleeping         %s\n", sleeping_text(can.sleeping));
  std::printf("  memory per pair  %s bytes\n", size_text(can.memory_per_peer).c_str());
}

void print_network(const Facts& facts) {
  if (!facts.network.empty()) std::printf("  between nodes a job would use %s\n", facts.network.c_str());
  if (!facts.network_problem.empty())
    std::printf("  between nodes a job could use nothing: %s\n", facts.network_problem.c_str());
}

void print_transports(const Facts& facts) {
  if (!facts.settings_problem.empty()) {
    std::printf("\ntransports: not opened, because %s\n", facts.settings_problem.c_str());
  }
  for (const TransportFacts& transport : facts.transports) print_transport(transport);
  std::printf("\n");
  print_network(facts);
}

// The rules of protocol::way_of(), for one kind of messages.
void print_rules(const MessageFacts& facts) {
  const protocol::WayLimits& limits = facts.limits;
  const char* kind = facts.kind;
  int rule = 0;
  const auto line = [&](protocol::Way way, const std::string& when) {
    std::printf("  %-13s %d  %-8s %s\n", std::exchange(kind, ""), ++rule, protocol::name_of(way), when.c_str());
  };
  if (facts.may_be_matched) line(limits.longer, "its sender waits for the receive (HEDDLE_WHEN_MATCHED)");
  std::uint64_t before = 0;
  const auto up_to = [&](protocol::Way way, std::uint64_t most) {
    if (most <= before) return;
    before = most;
    line(way, most == protocol::WayLimits::kAll ? "the others" : "up to " + size_text(most) + " bytes");
  };
  up_to(protocol::Way::inlined, limits.inlined);
  up_to(protocol::Way::eager, limits.eager);
  up_to(protocol::Way::piped, limits.piped);
  if (before == protocol::WayLimits::kAll) return;
  line(limits.longer, facts.may_be_matched ? "the others, and heddle_send without credit or room" : "the others");
}

void print_messages(const Facts& facts) {
  std::printf("\nmessages: the first rule that fits says how one goes\n");
  if (!facts.settings_problem.empty()) std::printf("  not known, because %s\n", facts.settings_problem.c_str());
  std::string transport;
  for (const MessageFacts& message : facts.messages) {
    if (message.transport != transport) std::printf("\n  over %s\n", message.transport.c_str());
    transport = message.transport;
    print_rules(message);
  }
  std::printf(R"(
  inline   in its record; the source is free at once
  eager    whole: copied into the transport, and out at the receiver
  piped    in parts: the receiver takes the first ones while the sender sends the others; in bursts whole up to 32 KiB
  pulled   offered; the receiver asks for the parts, and copies alone by the kernel while the sender is not in the library
  fetched  offered; the receiver gets it from the sender's memory

Limits are those of HEDDLE_TAG_EAGER_BYTES, HEDDLE_TAG_CREDIT_BYTES and HEDDLE_AM_EAGER_BYTES, and of the transport.
)");
}

void print_launchers(const Facts& facts) {
  std::printf("\nlaunchers (HEDDLE_BOOTSTRAP=NAME takes one in particular)\n");
  for (const bootstrap::KnownLauncher& launcher : facts.launchers) {
    std::printf("  %-16s %s\n", launcher.name, launcher.help);
    if (!launcher.library.empty()) std::printf("  %-16s by %s\n", "", launcher.library.c_str());
    if (!launcher.problem.empty()) std::printf("  %-16s not available: %s\n", "", launcher.problem.c_str());
  }
}

void print_setting(const SettingFacts& facts) {
  const base::Variable& variable = *facts.variable;
  std::printf("%c %-30s %-6s default %-10s", facts.set ? '*' : ' ', variable.name, type_text(variable.type),
              variable.default_value);
  if (facts.set) std::printf(" now %s", facts.set->c_str());
  const std::string range = base::range_text(variable);
  std::printf("\n      %s%s%s%s\n", variable.help, range.empty() ? "" : " (", range.c_str(), range.empty() ? "" : ")");
}

void print_unknown(const Facts& facts) {
  for (const UnknownFacts& unknown : facts.unknown) {
    std::printf("! %s is set but is not a variable of Heddle and has no effect%s%s%s\n", unknown.name.c_str(),
                unknown.meant.empty() ? "" : "; did you mean ", unknown.meant.c_str(),
                unknown.meant.empty() ? "" : "?");
  }
}

void print_settings(const Facts& facts) {
  std::printf(
      "\nsettings: variables of the environment, and parts of them (HEDDLE_FAULT=delay=5 sets HEDDLE_FAULT.delay); * "
      "set now\n");
  for (const SettingFacts& setting : facts.settings) print_setting(setting);
  print_unknown(facts);
}

// Prints a name and its text, or why it is not available.
void print_line(const char* name, const std::string& problem, const std::string& text) {
  std::printf("  %-11s %s\n", name, problem.empty() ? text.c_str() : ("not available: " + problem).c_str());
}

}  // namespace

void print_brief(const Facts& facts) {
  std::printf("heddle %s (%s, %s)\n\nmachine\n", facts.heddle.c_str(), facts.compiler.c_str(), facts.build.c_str());
  if (facts.machine) {
    const base::Topology& topology = *facts.machine;
    std::printf("  %s%s%s, %s, %s (as %s tells)\n", topology.processor.c_str(), topology.processor.empty() ? "" : ", ",
                count_text(topology.cores.size(), "core").c_str(),
                count_text(topology.hardware_threads(), "hardware thread").c_str(),
                count_text(topology.numa_nodes, "NUMA node").c_str(), topology.source);
    if (!topology.remark.empty()) std::printf("  without hwloc: %s\n", topology.remark.c_str());
  } else {
    std::printf("  unknown: %s\n", facts.machine_problem.c_str());
  }
  std::printf("\ntransports\n");
  if (!facts.settings_problem.empty()) std::printf("  not opened, because %s\n", facts.settings_problem.c_str());
  for (const TransportFacts& transport : facts.transports) {
    if (transport.for_tests) continue;
    print_line(transport.name.c_str(), transport.problem,
               transport.help + (transport.set_up == transport.can.name ? "" : "\n              " + transport.set_up));
  }
  print_network(facts);
  std::printf("\nlaunchers\n");
  for (const bootstrap::KnownLauncher& launcher : facts.launchers) {
    print_line(launcher.name, launcher.problem.empty() ? "" : launcher.problem + " (" + launcher.help + ")",
               launcher.help);
  }
  std::printf("\nsettings\n");
  bool some = false;
  for (const SettingFacts& setting : facts.settings) {
    if (!setting.set) continue;
    std::printf("  %s=%s (default %s)\n", setting.variable->name, setting.set->c_str(),
                *setting.variable->default_value != '\0' ? setting.variable->default_value : "empty");
    some = true;
  }
  if (!some) std::printf("  all %zu have their defaults\n", facts.settings.size());
  print_unknown(facts);
  std::printf(
      "\nMore: heddle info transports, messages, launchers, machine, engine or settings [PATTERN]; --all, --json, "
      "--help\n");
}

void print_sections(const Facts& facts, const std::vector<Section>& sections) {
  for (const Section section : sections) {
    switch (section) {
      case Section::version:
        print_version(facts);
        break;
      case Section::machine:
        print_machine(facts);
        break;
      case Section::engine:
        print_engine(facts);
        break;
      case Section::transports:
        print_transports(facts);
        break;
      case Section::messages:
        print_messages(facts);
        break;
      case Section::launchers:
        print_launchers(facts);
        break;
      case Section::settings:
        print_settings(facts);
        break;
    }
  }
}

// The facts as JSON for programs.

namespace {

// The length of the UTF-8 sequence at the beginning of `text`; 0: it is invalid.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // An overlong form, a UTF-16 surrogate, or a value beyond the last character.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
      (first == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

// The environment may hold any bytes; JSON is UTF-8.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const char c = text.front();
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += length != 0 ? text.substr(0, length) : "\xEF\xBF\xBD";
    }
    text.remove_prefix(length != 0 ? length : 1);
  }
  return out += '"';
}

// "[a, b]" or "{a, b}"; the parts are JSON.
std::string bracketed(char open, const std::vector<std::string>& parts, char close) {
  std::string text(1, open);
  for (const std::string& part : parts) text += (text.size() == 1 ? "" : ", ") + part;
  return text + close;
}

class Object {
 public:
  Object& text(const char* name, std::string_view value) { return raw(name, in_quotes(value)); }
  Object& number(const char* name, std::uint64_t value) { return raw(name, std::to_string(value)); }
  Object& flag(const char* name, bool value) { return raw(name, value ? "true" : "false"); }
  Object& raw(const char* name, const std::string& json) {
    parts_.push_back(in_quotes(name) + ": " + json);
    return *this;
  }
  [[nodiscard]] std::string json() const { return bracketed('{', parts_, '}'); }

 private:
  std::vector<std::string> parts_;
};

template <class Item, class Convert>
std::string array_of(const std::vector<Item>& items, Convert convert) {
  std::vector<std::string> parts;
  for (const Item& item : items) parts.push_back(convert(item));
  return bracketed('[', parts, ']');
}

std::string version(const Facts& facts) {
  return Object().text("heddle", facts.heddle).text("compiler", facts.compiler).text("build", facts.build).json();
}

std::string cache(const base::Cache& one) {
  return Object()
      .number("level", one.level)
      .text("kind", one.kind == 'd'   ? "data"
                    : one.kind == 'i' ? "instructions"
                                      : "unified")
      .number("bytes", one.bytes)
      .number("count", one.count)
      .number("shared_by_cores", one.shared_by)
      .number("line_bytes", one.line_bytes)
      .json();
}

std::string machine(const Facts& facts) {
  if (!facts.machine) return Object().text("problem", facts.machine_problem).json();
  const base::Topology& topology = *facts.machine;
  const auto core = [](const std::vector<int>& threads) {
    return array_of(threads, [](int thread) { return std::to_string(thread); });
  };
  Object object;
  object.text("source", topology.source).text("processor", topology.processor).number("packages", topology.packages);
  if (!topology.remark.empty()) object.text("remark", topology.remark);
  return object.number("numa_nodes", topology.numa_nodes)
      .number("hardware_threads", topology.hardware_threads())
      .raw("cores", array_of(topology.cores, core))
      .raw("caches", array_of(topology.caches, cache))
      .json();
}

std::string engine(const Facts& facts) {
  return Object().text("sharing_modes", facts.modes).flag("hand_over", facts.hand_over).json();
}

const char* sleeping_name(transport::Sleeping sleeping) {
  return sleeping == transport::Sleeping::impossible ? "impossible"
         : sleeping == transport::Sleeping::fenced   ? "fenced"
                                                     : "free";
}

std::string transport(const TransportFacts& facts) {
  Object object;
  object.text("name", facts.name).text("help", facts.help).flag("available", facts.problem.empty());
  if (!facts.problem.empty()) return object.text("problem", facts.problem).json();
  const transport::Capabilities& can = facts.can;
  return object.text("set_up", facts.set_up)
      .raw("commands", array_of(opcode_names(can.opcodes), [](const std::string& name) { return in_quotes(name); }))
      .flag("direct_memory", can.direct)
      .flag("ordered_messages", can.ordered_messages)
      .number("max_message_bytes", can.max_message)
      .raw("max_transfer_bytes", can.max_transfer == UINT64_MAX ? "null" : std::to_string(can.max_transfer))
      .number("fetched_above_bytes", can.fetch_bytes)
      .number("max_workers", can.max_workers)
      .text("sleeping", sleeping_name(can.sleeping))
      .number("bytes_per_pair", can.memory_per_peer)
      .json();
}

std::string message(const MessageFacts& facts) {
  const auto bytes = [](std::uint64_t limit) {
    return limit == protocol::WayLimits::kAll ? std::string("null") : std::to_string(limit);
  };
  return Object()
      .text("transport", facts.transport)
      .text("kind", facts.kind)
      .number("inline_bytes", facts.limits.inlined)
      .raw("eager_bytes", bytes(facts.limits.eager))
      .raw("piped_bytes", bytes(facts.limits.piped))
      .text("longer", protocol::name_of(facts.limits.longer))
      .json();
}

std::string launcher(const bootstrap::KnownLauncher& one) {
  Object object;
  object.text("name", one.name).text("help", one.help).flag("available", one.problem.empty());
  if (!one.library.empty()) object.text("library", one.library);
  if (!one.problem.empty()) object.text("problem", one.problem);
  return object.json();
}

std::string setting(const SettingFacts& facts) {
  const base::Variable& variable = *facts.variable;
  Object object;
  object.text("name", variable.name).text("type", type_text(variable.type)).text("default", variable.default_value);
  object.raw("set", facts.set ? in_quotes(*facts.set) : "null");
  if (const std::string range = base::range_text(variable); !range.empty()) object.text("range", range);
  return object.text("help", variable.help).json();
}

std::string unknown(const UnknownFacts& facts) {
  return Object()
      .text("name", facts.name)
      .raw("did_you_mean", facts.meant.empty() ? "null" : in_quotes(facts.meant))
      .json();
}

std::string section_json(const Facts& facts, Section section) {
  switch (section) {
    case Section::version:
      return version(facts);
    case Section::machine:
      return machine(facts);
    case Section::engine:
      return engine(facts);
    case Section::transports:
      return array_of(facts.transports, transport);
    case Section::messages:
      return array_of(facts.messages, message);
    case Section::launchers:
      return array_of(facts.launchers, launcher);
    case Section::settings:
      return array_of(facts.settings, setting);
  }
  return "null";
}

}  // namespace

std::string json_of(const Facts& facts, const std::vector<Section>& sections) {
  Object object;
  for (const Section section : sections) {
    object.raw(kSections.at(static_cast<std::size_t>(section)), section_json(facts, section));
    if (section == Section::transports)
      object.raw("network", facts.network.empty() ? "null" : in_quotes(facts.network))
          .raw("network_problem", facts.network_problem.empty() ? "null" : in_quotes(facts.network_problem));
    if (section == Section::settings) object.raw("unknown_settings", array_of(facts.unknown, unknown));
  }
  if (const std::string& problem = problem_of(facts); !problem.empty()) object.text("problem", problem);
  return object.json() + "\n";
}

}  // namespace heddle::tools
