#!/usr/bin/env bash
# The backend for LCW, with LCW's own sources: its examples, the tests in interfaces/lcw/tests, and Reconverse's tests.
#
#   scripts/check_lcw.sh TREE [REPEATS]     TREE: a build of Heddle, such as build/dev; REPEATS: of Reconverse's tests, 1 unless given
#
# HEDDLE_LCW_SOURCE, HEDDLE_LCI_SOURCE, HEDDLE_RECONVERSE_SOURCE: clones of JiakunYan/lcw, uiuc-hpc/lci and charmplusplus/reconverse. Without the
# first two nothing is tested (exit 77), without the third Reconverse is not. MPI's and LCI's backends are built, and take the same examples, where
# an MPI (MPICXX, MPIRUN: mpicxx and mpirun unless set) and libfabric are installed. Exit 1: something has failed; each is named.
set -uo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." || exit 2
if (($# < 1)); then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
  exit 2
fi
for name in HEDDLE_LCW_SOURCE HEDDLE_LCI_SOURCE; do
  place=${!name:-}
  if [[ -z $place ]]; then
    echo "check_lcw: skipped: $name is not set; it says where the sources are"
    exit 77
  fi
  if [[ ! -f $place/CMakeLists.txt ]]; then
    echo "check_lcw: $name is $place, where no CMakeLists.txt is" >&2
    exit 2
  fi
done
lcw_source=$(realpath -- "$HEDDLE_LCW_SOURCE")
lci_source=$(realpath -- "$HEDDLE_LCI_SOURCE")
reconverse_source=${HEDDLE_RECONVERSE_SOURCE:+$(realpath -- "$HEDDLE_RECONVERSE_SOURCE")}
unset HEDDLE_LCW_SOURCE HEDDLE_LCI_SOURCE HEDDLE_RECONVERSE_SOURCE # the library reports variables of this form that it does not know
tree=$(realpath -- "$1")
repeats=${2:-1}
place=$tree/lcw
prefix=$place/heddle
jobs=$(nproc)
mpicxx=${MPICXX:-mpicxx}
mpirun=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # in containers
failed=0

say() { printf 'check_lcw: %s\n' "$*"; }
fail() {
  say "FAILED: $*"
  failed=1
}
# logged NAME COMMAND…: its output goes to a file, which is shown if it fails.
logged() {
  local log=$place/$1.log
  shift
  if "$@" >"$log" 2>&1; then return 0; fi
  tail -n 30 -- "$log" >&2
  return 1
}

root=$PWD
mkdir -p -- "$place"
cd -- "$place" || exit 1 # where libraries that end by a signal leave their reports
logged install cmake --install "$tree" --prefix "$prefix" || exit 1
hook=$(find "$prefix" -path '*/heddle/lcw/heddle_lcw.cmake' -print -quit)
[[ -n $hook ]] || hook=$root/interfaces/lcw/heddle_lcw.cmake
heddle=$(find "$prefix" -path '*/bin/heddle' -print -quit)

has_mpi=OFF
command -v "$mpicxx" >/dev/null && command -v "$mpirun" >/dev/null && has_mpi=ON
has_fabric=OFF
pkg-config --exists libfabric 2>/dev/null && has_fabric=ON
[[ $has_mpi == ON ]] || say "no $mpicxx or $mpirun: MPI's backend is not built"
[[ $has_fabric == ON ]] || say "no libfabric: LCI's backend is not built"
# LCI builds LCT alone where it has no network.
common=(-DCMAKE_PREFIX_PATH="$prefix" -DFETCHCONTENT_SOURCE_DIR_LCI="$lci_source" -DFETCHCONTENT_FULLY_DISCONNECTED=ON
  -DCMAKE_PROJECT_LCW_INCLUDE="$hook" -DLCW_TRY_ENABLE_BACKEND_MPI="$has_mpi" -DLCW_TRY_ENABLE_BACKEND_LCI2="$has_fabric"
  -DLCI_NETWORK_BACKENDS=ofi -DLCI_USE_TCMALLOC=OFF -DLCT_PMI_BACKEND_ENABLE_MPI="$has_mpi" -DMPI_CXX_COMPILER="$mpicxx")
[[ $has_fabric == ON ]] || common+=(-DLCI_WITH_LCT_ONLY=ON)

# The tests of interfaces/lcw are in the sources only, so that folder's own file adds them.
logged configure cmake -S "$lcw_source" -B "$place/lcw" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g" \
  "${common[@]}" -DCMAKE_PROJECT_LCW_INCLUDE="$root/interfaces/lcw/heddle_lcw.cmake" -DHEDDLE_LCW_TESTS=ON || exit 1
logged build cmake --build "$place/lcw" -j "$jobs" || exit 1
# As an installation has it: the files must suffice.
logged configure_installed cmake -S "$lcw_source" -B "$place/installed" "${common[@]}" -DLCW_WITH_EXAMPLES=OFF || exit 1
logged build_installed cmake --build "$place/installed" -j "$jobs" --target lcw || exit 1

# LCW's pingpong_mt in the forms of its own CMake tests.
forms=("--op send --nprgthreads 0" "--op put --nprgthreads 0" "--op send --send-window 4 --recv-window 1 --nprgthreads 0"
  "--op put --send-window 4 --recv-window 1 --nprgthreads 0 --ndevices 4 --nthreads 4"
  "--op send --send-window 4 --recv-window 4 --nprgthreads 0"
  "--op put --send-window 4 --recv-window 4 --nprgthreads 0 --ndevices 4 --nthreads 4")
examples() { # NAME LAUNCHER…
  local name=$1 form
  shift
  logged "hello-$name" timeout 60 "$@" "$place/lcw/examples/lcw_hello_world" || fail "$name: hello_world"
  for form in "${forms[@]}"; do
    # shellcheck disable=SC2086
    logged "pingpong-$name" timeout 120 "$@" "$place/lcw/examples/lcw_pingpong_mt" $form || fail "$name: pingpong_mt $form"
  done
  say "$name: LCW's examples ran"
}
export LCW_BACKEND_AUTO=heddle
for transport in shm ucx; do
  HEDDLE_TRANSPORT=$transport examples "heddle-$transport" "$heddle" run -n 2
done
if [[ $has_mpi == ON ]]; then
  examples heddle-mpirun "$mpirun" -n 2
  LCW_BACKEND_AUTO=mpi examples mpi "$mpirun" -n 2
  [[ $has_fabric == OFF ]] || LCW_BACKEND_AUTO=lci2 examples lci2 "$mpirun" -n 2
fi

logged queue_test timeout 300 "$place/lcw/lcw_queue_test" || fail queue_test
for ranks in 1 2 4; do
  for transport in shm ucx; do
    for program in operations_test "threads_test 50"; do
      # shellcheck disable=SC2086
      HEDDLE_TRANSPORT=$transport logged "${program%% *}-$ranks-$transport" timeout 300 "$heddle" run -n "$ranks" "$place/lcw/"lcw_$program ||
        fail "$program, $ranks ranks, $transport"
    done
  done
done
for mode in shared delegate offload mutex; do
  for program in operations_test "threads_test 50"; do
    # shellcheck disable=SC2086
    HEDDLE_SHARING=$mode logged "${program%% *}-$mode" timeout 300 "$heddle" run -n 2 "$place/lcw/"lcw_$program || fail "$program, $mode"
  done
done
# What must end with a message that says what is wrong.
while IFS='|' read -r wrong message; do
  if timeout 60 "$heddle" run -n 2 "$place/lcw/lcw_errors_test" "$wrong" >"$place/errors.log" 2>&1; then
    fail "errors_test $wrong: it was not noticed"
  elif ! grep -aq -- "$message" "$place/errors.log"; then
    fail "errors_test $wrong: no message with \"$message\""
  fi
done <<'END'
tag|send with tag -1: tags are 0 to
large-tag|recv with tag 9223372036854775807: tags are 0 to
rank|put with rank 2: ranks are 0 to 1
send-to-any|send with rank -1: ranks are 0 to 1
length|recv of -1 bytes
free-twice|is no device that is open
put-without-put-comp|which was allocated without put_comp
truncated|the message is longer than the buffer
dead-peer-recv|the rank has died or left the job
dead-peer-barrier|barrier: rank 1 has died or left the job
END
say "tests of interfaces/lcw ran"

if [[ -z $reconverse_source ]]; then
  say "skipped: Reconverse: HEDDLE_RECONVERSE_SOURCE is not set; it says where the sources are"
elif [[ $has_mpi == OFF ]]; then
  say "skipped: Reconverse: its tests start their processes by $mpirun"
else
  launcher=$mpirun
  # Open MPI's name for itself differs between versions; without the option it starts no more processes than there are cores.
  [[ $("$mpirun" --version 2>&1) != *open-mpi.org* ]] || launcher="$mpirun;--oversubscribe"
  logged configure_reconverse cmake -S "$reconverse_source" -B "$place/reconverse" -DCMAKE_BUILD_TYPE=Debug "${common[@]}" \
    -DFETCHCONTENT_SOURCE_DIR_LCW="$lcw_source" -DRECONVERSE_AUTOFETCH_LCW=ON -DRECONVERSE_TRY_ENABLE_COMM_LCI2=OFF \
    -DLCW_TRY_ENABLE_BACKEND_LCI2=OFF -DRECONVERSE_TEST_LAUNCHER="$launcher" -DCMK_TASKQUEUE=ON || exit 1
  logged build_reconverse cmake --build "$place/reconverse" -j "$jobs" || exit 1
  # Reconverse asks for MPI's backend unless +lcw_backend says otherwise.
  for ((i = 1; i <= repeats; ++i)); do
    LCW_HEDDLE_ALWAYS=1 ctest --test-dir "$place/reconverse" --timeout 900 >"$place/reconverse-$i.log" 2>&1 ||
      fail "Reconverse, repeat $i: $(grep -E '^[[:space:]]+[0-9]+ - ' "$place/reconverse-$i.log" | tr -s ' \t\n' ' ')"
  done
  say "Reconverse's tests ran $repeats times"
fi
exit "$failed"
