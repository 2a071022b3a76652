// The three forms of a collective operation, from its handle on. Each operation prepares its call
// itself.
//
// Prepare: (Team&, Call*) -> Status. An error is returned unchanged; the call has then not taken
// place. Everything that the call points to must live until the form returns.
#pragma once

#include "api/arguments.hpp"
#include "collective/collective.hpp"
#include "collective/team.hpp"
#include "heddle/collectives.h"

namespace heddle::api {

inline constexpr std::size_t kFirstCollectiveOptions = 24;
static_assert(sizeof(heddle_collective_options) >= kFirstCollectiveOptions);

// A limit so small that no later product of counts, offsets and members exceeds 64 bits.
inline constexpr std::uint64_t kMostCollectiveBytes = std::uint64_t{1} << 48;

template <class Prepare>
Status run_form(heddle_team handle, Prepare&& prepare) {
  auto* team = find_handle<collective::Team>(handle.id);
  if (team == nullptr) [[unlikely]] {
    return bad_handle("team", handle.id);
  }
  collective::Call call;
  if (const Status status = prepare(*team, &call); status != HEDDLE_DONE) return status;
  return guarded([&]() -> Status { return team->run(call); });
}

inline Status give_collective(base::Result<collective::Collective*> made, heddle_collective* collective) {
  if (!made) return made.status();
  collective->id = (*made)->handle();
  return HEDDLE_DONE;
}

// `function`: with heddle_, for messages.
template <class Prepare>
Status start_form(const char* function, heddle_team handle, Prepare&& prepare, heddle_collective* collective) {
  if (collective == nullptr)
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: collective is null; pass an address that is valid", function);
  *collective = {};
  auto* team = find_handle<collective::Team>(handle.id);
  if (team == nullptr) [[unlikely]] {
    return bad_handle("team", handle.id);
  }
  collective::Call call;
  if (const Status status = prepare(*team, &call); status != HEDDLE_DONE) return status;
  return guarded([&]() -> Status {
    const Status status = give_collective(team->start(call), collective);
    return status == HEDDLE_DONE ? HEDDLE_POSTED : status;
  });
}

template <class Prepare>
Status init_form(const char* function, heddle_team handle, Prepare&& prepare, const heddle_collective_options* options,
                 heddle_collective* collective) {
  if (collective == nullptr)
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: collective is null; pass an address that is valid", function);
  *collective = {};
  heddle_collective_options own{};
  if (const Status status = read_options("collective options", options, kFirstCollectiveOptions, &own);
      status != HEDDLE_DONE) {
    return status;
  }
  auto* team = find_handle<collective::Team>(handle.id);
  if (team == nullptr) [[unlikely]] {
    return bad_handle("team", handle.id);
  }
  collective::Call call;
  if (const Status status = prepare(*team, &call); status != HEDDLE_DONE) return status;
  call.algorithm = own.algorithm;
  call.segment_bytes = own.segment_bytes;
  return guarded([&]() -> Status { return give_collective(team->init(call), collective); });
}

}  // namespace heddle::api
