// Schedules as text for people.
#pragma once

#include <string>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

// One line per command, by queue: what it waits for, what it does, which credits it gives.
std::string text_of(const Schedule& schedule);

// A graph for Graphviz: how many bytes each rank puts to each other rank. Edges with signals only
// are dashed.
std::string dot_of(const std::string& title, const std::vector<Schedule>& schedules);

}  // namespace heddle::collective
