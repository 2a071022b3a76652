#!/bin/sh
# mpirun_test.sh COMPILER LAUNCHER UTOFU-MPIRUN INCLUDE LIBRARY_FOLDER: a program that meets by that MPI, in each mode. It is compiled here,
# since an MPI may be there or not.
set -eu
compiler=$1 launcher=$2 wrapper=$3 include=$4 library=$5
for needed in "$compiler" "$launcher"; do
  command -v "$needed" >/dev/null || {
    echo "skipped: there is no $needed"
    exit 0
  }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$compiler" -std=c11 -Wall -Wextra -Werror -I"$include" "$(dirname "$0")/met_by_mpi.c" -L"$library" -ltofucom -o "$folder/app"

# A container's only user is often root, and has fewer cores than ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export TMPDIR="$folder"
for mode in plain strict; do
  "$wrapper" --mpirun "$launcher" --utofu 2x1x1:2 UTOFU_EMU_MODE=$mode -n 4 "$folder/app" >"$folder/said" ||
    { echo "$mode: status $?"; cat "$folder/said"; exit 1; }
  grep -q "^4 processes met by MPI: right" "$folder/said" || { echo "$mode:"; cat "$folder/said"; exit 1; }
done
set -- "$folder"/utofu-*
[ ! -e "$1" ] || { echo "left behind: $*"; exit 1; }
# The launcher's status is told, and so is what the wrapper itself cannot do. The program reads its input to the end: MPICH's launcher dies of
# SIGPIPE where it has still something to forward to a program that has ended.
status=0
"$wrapper" --mpirun "$launcher" -n 1 sh -c 'cat >/dev/null; exit 3' </dev/null >/dev/null 2>&1 || status=$?
[ $status -eq 3 ] || { echo "exit status $status instead of 3"; exit 1; }
status=0
"$wrapper" --mpirun no-such-launcher -n 1 true 2>/dev/null || status=$?
[ $status -eq 127 ] || { echo "exit status $status for a launcher that there is not"; exit 1; }
echo "$launcher: right"
