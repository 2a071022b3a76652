#include "collective/print.hpp"

#include <map>

namespace heddle::collective {
namespace {

std::string text_of(const Block& block) {
  static constexpr std::array<const char*, kPlaces> kNames = {"send", "receive", "scratch", "beside"};
  return std::string(kNames.at(static_cast<std::size_t>(block.place))) + "[" + std::to_string(block.offset) + ".." +
         std::to_string(block.offset + block.bytes) + ")";
}

std::string waits_of(const Command& command) {
  std::string text;
  for (const Wait& wait : command.waits)
    if (wait.count > 0)
      text += (text.empty() ? "when c" : " and c") + std::to_string(wait.counter) + " >= " + std::to_string(wait.count);
  return text.empty() ? "at once" : text;
}

std::string link_text(std::uint32_t link) {
  if (link == kAnyLink) return "";
  static constexpr std::array<const char*, kLinks> kNames = {"+x", "-x", "+y", "-y", "+z", "-z"};
  return std::string(", link ") + kNames.at(link);
}

std::string act_of(const Command& command) {
  const std::string target = " rank " + std::to_string(command.target);
  const bool bytes = command.source.bytes > 0;
  switch (command.action) {
    case Action::nop:
      return "nop";
    case Action::put:
      if (!bytes) return "signal" + target;
      return "put " + text_of(command.source) + " to" + target + " " + text_of(command.destination);
    case Action::get:
      return "get " + text_of(command.source) + " of" + target + " to " + text_of(command.destination);
    case Action::expose:
      return "expose " + text_of(command.source);
    case Action::copy:
      return "copy " + text_of(command.source) + " to " + text_of(command.destination);
    case Action::reduce:
      return "reduce " + text_of(command.source) + " into " + text_of(command.destination);
  }
  return "";
}

}  // namespace

std::string text_of(const Schedule& schedule) {
  std::string text = "rank " + std::to_string(schedule.rank) + " of " + std::to_string(schedule.ranks) + ": " +
                     std::to_string(schedule.commands.size()) + " commands, " + std::to_string(schedule.scratch_bytes) +
                     " bytes of its own\n";
  for (std::size_t i = 0; i < schedule.counters.size(); ++i) {
    const Counter& counter = schedule.counters[i];
    if (counter.per_run == 0) continue;
    text += "  counter c" + std::to_string(i) + ": " + std::to_string(counter.per_run) + " a run";
    if (counter.initial > 0) text += ", " + std::to_string(counter.initial) + " at first";
    text += "\n";
  }
  for (std::uint32_t queue = 0; queue < schedule.queues; ++queue) {
    bool first = true;
    for (const Command& command : schedule.commands) {
      if (command.queue != queue) continue;
      if (first) text += "  queue " + std::to_string(queue) + link_text(schedule.link_of(queue)) + "\n";
      first = false;
      text += "    " + waits_of(command) + ": " + act_of(command);
      if (command.credits > 0) text += ", +" + std::to_string(command.credits) + " c" + std::to_string(command.counter);
      text += "\n";
    }
  }
  return text;
}

std::string dot_of(const std::string& title, const std::vector<Schedule>& schedules) {
  std::string text = "digraph \"" + title + "\" {\n  node [shape=circle];\n";
  for (const Schedule& schedule : schedules) {
    text += "  " + std::to_string(schedule.rank) + ";\n";
    std::map<Rank, std::uint64_t> bytes;
    for (const Command& command : schedule.commands)
      if (command.action == Action::put && command.target != schedule.rank)
        bytes[command.target] += command.source.bytes;
    for (const Command& command : schedule.commands)
      if (command.action == Action::get)
        text += "  " + std::to_string(command.target) + " -> " + std::to_string(schedule.rank) + " [label=\"" +
                std::to_string(command.source.bytes) + "\"];\n";
    for (const auto& [target, sum] : bytes)
      text += "  " + std::to_string(schedule.rank) + " -> " + std::to_string(target) +
              (sum == 0 ? " [style=dashed];\n" : " [label=\"" + std::to_string(sum) + "\"];\n");
  }
  return text + "}\n";
}

}  // namespace heddle::collective
