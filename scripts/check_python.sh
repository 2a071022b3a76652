#!/usr/bin/env bash
# The Python package, built on an installation of a tree that was built before: its types, and its tests.
#
#   scripts/check_python.sh TREE [FLAKY]     TREE: such as build/dev; FLAKY: a file that gets the names of tests that passed when tried again
#
# What it needs of PyPI (interfaces/python/requirements.txt) it installs into TREE/python.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
tree=$(realpath -- "$1")
flaky=${2:-/dev/null}
environment=$tree/python
python=$environment/bin/python

[[ -x $python ]] || python3 -m venv "$environment"
"$python" -m pip install -q --disable-pip-version-check -r interfaces/python/requirements.txt
cmake --install "$tree" --prefix "$environment/heddle" >"$tree/python.install.log"
library=$("$environment/bin/python" -c 'import pathlib, sys; print(next(pathlib.Path(sys.argv[1]).glob("lib*/**/cmake/heddle")))' "$environment/heddle")
"$python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall . \
  --config-settings=build-dir="$environment/build" --config-settings=cmake.define.HEDDLE_INSTALLED=ON --config-settings=cmake.define.heddle_DIR="$library" \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS=-Werror

"$python" -m mypy interfaces/python/heddle interfaces/python/tests examples/python bench/python
"$python" -m mypy -p heddle # as installed: with the module's stub

# What fails is tried again alone, at most twice.
tests=("$python" -m pytest -q -o cache_dir="$environment/cache" interfaces/python/tests)
"${tests[@]}" -rs && exit
failed=$("$python" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' "$environment/cache/v/cache/lastfailed")
for again in 1 2; do
  echo "check_python: again ($again), what has failed"
  if "${tests[@]}" --last-failed; then
    sed 's/^/python: /' <<<"$failed" >>"$flaky"
    exit 0
  fi
done
exit 1
