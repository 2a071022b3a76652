#!/usr/bin/env bash
# mpi4py's own test suite on Heddle's MPI library, and an example: mpi4py is built from its source on PyPI with heddle-mpicc. What needs MPI-IO,
# spawning or ports is left out, or fails with MPI_ERR_UNSUPPORTED_OPERATION, which is counted; any other failure fails the check.
#
#   scripts/check_mpi4py.sh BUILD [RANKS …]     of a built tree; 1 2 3 5 ranks unless given. Works in BUILD/mpi4py
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
build=$(readlink -f -- "${1:?usage: scripts/check_mpi4py.sh BUILD [RANKS …]}")
shift
ranks=("$@")
((${#ranks[@]})) || ranks=(1 2 3 5)
folder=$build/mpi4py
unset LD_LIBRARY_PATH

rm -rf "$folder"
mkdir -p "$folder"
cmake --install "$build" --prefix "$folder/heddle" >"$folder/install.log"
python3 -m venv "$folder/python"
"$folder/python/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary mpi4py -d "$folder" mpi4py
tar -xzf "$folder"/mpi4py-*.tar.gz -C "$folder"
source=$(echo "$folder"/mpi4py-*/)
MPICC=$folder/heddle/bin/heddle-mpicc "$folder/python/bin/pip" install -q --disable-pip-version-check --no-binary mpi4py "$source" numpy

run() { timeout 1500 "$folder/heddle/bin/heddle-mpirun" "$@"; }
failed=0
for n in "${ranks[@]}"; do
  logs=$folder/tests.$n
  mkdir -p "$logs"
  # test_dynproc and test_spawn wait for processes that nobody starts; test_io, test_file and test_subclass open files when they are imported;
  # test_objmodel leaves operators behind when it cannot open one, and test_op then has none.
  run -n "$n" sh -c 'exec "$@" >"$0/$HEDDLE_LOCAL_RANK" 2>&1' "$logs" "$folder/python/bin/python" "$source/test/main.py" -v \
    -e dynproc -e spawn -e file -e io -e subclass -e objmodel || true
  python3 scripts/judge_mpi4py.py "$n" "$logs" || failed=1
done
PYTHONPATH=examples/python run -n 3 "$folder/python/bin/python" examples/python/parameter_server_mpi4py.py || failed=1
exit $failed
