// Teams of ranks as Python sees them; their operations are in team.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "context.hpp"

namespace heddle::python {

class Team : public std::enable_shared_from_this<Team> {
 public:
  Team(std::shared_ptr<Context> context, heddle_team handle) : context_(std::move(context)), handle_(handle) {
    check(heddle_team_rank(handle_, &rank_));
    check(heddle_team_size(handle_, &size_));
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] heddle_team handle() const { return handle_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  heddle_team handle_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
};

void bind_teams(nb::module_& module);
void bind_collectives(nb::module_& module, nb::class_<Team>& team);

}  // namespace heddle::python
