#include "team.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

namespace heddle::python {
namespace {

using Made = std::optional<std::shared_ptr<Team>>;

// Null: this rank is no member.
template <class Make>
Made made(const std::shared_ptr<Context>& context, Make&& make) {
  const Use use(context->users(), kContextLeft);
  heddle_team team{};
  checked_released([&] { return make(&team); });
  if (team.id == 0) return std::nullopt;
  return std::make_shared<Team>(context, team);
}

Made world(const std::shared_ptr<Context>& context) {
  return made(context, [&](heddle_team* team) { return heddle_team_world(context->handle(), team); });
}

Made split(const Team& parent, std::optional<std::uint32_t> colour, std::int64_t key) {
  return made(parent.context(), [&](heddle_team* team) {
    return heddle_team_split(parent.handle(), colour.value_or(HEDDLE_NO_COLOUR), key, team);
  });
}

Made subset(const Team& parent, const std::vector<std::uint32_t>& ranks) {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  return made(parent.context(),
              [&](heddle_team* team) { return heddle_team_subset(parent.handle(), ranks.data(), count, team); });
}

std::optional<std::uint32_t> translate(const Team& from, std::uint32_t rank, const Team& to) {
  const Use use(from.context()->users(), kContextLeft);
  std::uint32_t found = HEDDLE_NO_RANK;
  check(heddle_team_translate(from.handle(), rank, to.handle(), &found));
  if (found == HEDDLE_NO_RANK) return std::nullopt;
  return found;
}

void free_team(const Team& team) {
  const Use use(team.context()->users(), kContextLeft);
  check(heddle_team_free(team.handle()));
}

}  // namespace

// Programs see it as heddle.teams.Team.
void bind_teams(nb::module_& module) {
  nb::class_<Team> team(module, "TeamHandle", "Of heddle.Team.");
  team.def_prop_ro("rank", &Team::rank)
      .def_prop_ro("size", &Team::size)
      .def("split", &split, nb::arg("colour").none(), nb::arg("key"))
      .def("subset", &subset, nb::arg("ranks"))
      .def("translate", &translate, nb::arg("rank"), nb::arg("to"))
      .def("free", &free_team);
  module.def("world", &world, nb::arg("context"), "Of heddle.Team.");
  bind_collectives(module, team);
}

}  // namespace heddle::python
