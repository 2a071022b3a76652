// The facts as JSON for programs.
#include <cstdio>

#include "tools/info_facts.hpp"

namespace heddle::tools {
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

std::string launcher(const bootstrap::Launcher& one) {
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
