// Teams: handles, how PEs agree about a new team, and queries.
//
// A handle is the team's slot (groups.hpp) plus one, with a generation in the bits above. So a
// handle of a destroyed team differs from that of the team that has the slot now.
#pragma once

#include "openshmem/groups.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// Open SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED at the start; close all teams at the end.
void open_teams(Call call);
void close_teams();

Group& world_team();
// Ends the job if the handle is not that of a team.
Group& checked_team(Call call, shmem_team_t team);

int team_my_pe(Call call, shmem_team_t team);
int team_n_pes(Call call, shmem_team_t team);
int team_get_config(Call call, shmem_team_t team, long config_mask, shmem_team_config_t* config);
int team_translate_pe(Call call, shmem_team_t src_team, int src_pe, shmem_team_t dest_team);
void* team_ptr(Call call, shmem_team_t team, const void* dest, int pe);
int team_sync(Call call, shmem_team_t team);

// Collective over the parent.
int team_split_strided(Call call, shmem_team_t parent_team, int start, int stride, int size,
                       const shmem_team_config_t* config, long config_mask, shmem_team_t* new_team);
int team_split_2d(Call call, shmem_team_t parent_team, int xrange, const shmem_team_config_t* xaxis_config,
                  long xaxis_mask, shmem_team_t* xaxis_team, const shmem_team_config_t* yaxis_config, long yaxis_mask,
                  shmem_team_t* yaxis_team);
void team_destroy(Call call, shmem_team_t team);

int team_create_ctx(Call call, shmem_team_t team, long options, shmem_ctx_t* ctx);
int ctx_get_team(Call call, shmem_ctx_t ctx, shmem_team_t* team);

}  // namespace heddle::shmem
