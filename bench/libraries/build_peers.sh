#!/usr/bin/env bash
# Compiles the programs for the peers that scripts/install_peers.sh has installed: PEERS/NAME/heddle_program, by what PEERS/NAME/peer.env says.
# Heddle's own MPI library takes part as one of them, as it was built: PEERS/heddle_mpi.
#
#   bench/libraries/build_peers.sh BUILD [PEERS]     BUILD: a configured build tree, such as build/release; PEERS: HEDDLE_PEERS_DIR or build/peers
set -uo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)

say() { printf 'build_peers: %s\n' "$*" >&2; }

[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; }
(($# >= 1)) || { say "which build tree? bench/libraries/build_peers.sh build/release"; exit 2; }
build=$(readlink -f -- "$1")
peers=${2:-${HEDDLE_PEERS_DIR:-$root/build/peers}}
[[ -f $build/build.ninja ]] || { say "$1 is no build tree; cmake --preset release first"; exit 2; }
ninja -C "$build" heddle_bench_measure heddle_bench_harness heddle_base >/dev/null || { say "ninja -C $build heddle_bench_measure failed"; exit 1; }

# make FOLDER: its program.
make() (
  # shellcheck disable=SC1091
  source "$1/peer.env" || exit 1
  case ${KIND:-mpi} in
    ucx) libraries=(-lucp -lucs) ;;
    mpi) libraries=("${LIBRARY:--lmpi}") ;;
    oshmem) libraries=(-loshmem -lmpi) ;;
    *)
      say "$1/peer.env: KIND=$KIND is not ucx, mpi or oshmem"
      exit 1
      ;;
  esac
  # What it needs of the peer's other libraries is found when it runs, by LD_LIBRARY_PATH.
  $CXX -std=c++20 -O3 -DNDEBUG -Wno-restrict -DHEDDLE_PEER_NAME="\"$NAME-$VERSION\"" \
    -I"$root/bench" -I"$root/src" -I"$root/include" "$root/bench/libraries/${KIND:-mpi}.cpp" -o "$1/heddle_program" \
    "$build/bench/libheddle_bench_measure.a" "$build/bench/libheddle_bench_harness.a" "$build/src/base/libheddle_base.a" "${libraries[@]}" \
    -pthread -ldl -Wl,--allow-shlib-undefined
)

# The peer.env of the MPI library in the build tree.
describe_own_mpi() {
  local folder=$peers/heddle_mpi flags="-I$build/interfaces/mpi/made/include -L$build/interfaces/mpi"
  mkdir -p "$folder"
  {
    printf '%s=%q\n' NAME heddle_mpi VERSION "$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")" KIND mpi
    printf '%s=%q\n' CC "cc $flags" CXX "c++ $flags" LIBRARY -lmpi_abi RUN "$build/tools/heddle run"
    printf '%s=%q\n' LD_LIBRARY_PATH "$build/interfaces/mpi:$build/src/api"
  } >"$folder/peer.env"
}
if ninja -C "$build" heddle_mpi heddle_tool >/dev/null 2>&1; then describe_own_mpi; fi

found=0 failed=0
for env in "$peers"/*/peer.env; do
  [[ -f $env ]] || continue
  found=1
  folder=$(dirname -- "$env")
  if make "$folder"; then
    say "$folder/heddle_program"
  else
    say "$(basename -- "$folder"): does not compile"
    failed=1
  fi
done
((found)) || { say "no peer in $peers; scripts/install_peers.sh installs them"; exit 1; }
exit $failed
