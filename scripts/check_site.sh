#!/usr/bin/env bash
# The site: built, its programs run and their output compared, its links, its reference against the sources, and its pages in a browser,
# with the page of `heddle report`.
#
#   scripts/check_site.sh TREE     TREE: a tree that was built before, such as build/dev
#
#   SITE_PREFIX=FOLDER           an installation instead of one that is made from TREE
#   SITE_PYTHON=PYTHON           one with the package; else TREE/python/bin/python (scripts/check_python.sh), if it is there
#
# Needs Debian's chromium. Screenshots: build/site/screenshots.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
root=$PWD
if (($# != 1)) || [[ ! -d $1 ]]; then
  echo "usage: scripts/check_site.sh TREE (a tree that was built before, such as build/dev)" >&2
  exit 2
fi
out=$(realpath -m -- "${SITE_OUTPUT:-build/site}")
prefix=${SITE_PREFIX:-$out/heddle}
package=${SITE_PYTHON:-$(realpath -m -- "$1")/python/bin/python}

if ! command -v chromium >/dev/null; then
  (($(id -u) == 0)) && sudo= || sudo=sudo
  $sudo apt-get -qq update && $sudo apt-get -qq install -y chromium
fi
if [[ -z ${SITE_PREFIX:-} ]]; then
  rm -rf "$prefix"
  mkdir -p "$out"
  cmake --install "$1" --prefix "$prefix" >"$out/install.log"
fi
HEDDLE_TOOL=$prefix/bin/heddle scripts/build_site.sh
python=$out/venv/bin/python

"$python" scripts/site_test.py links "$out/html"
"$python" scripts/site_test.py reference "$out/html" .
(cd docs/site && "$python" -m mypy --strict --no-error-summary --cache-dir "$out/mypy" -p generate --ignore-missing-imports)

# ---- the programs of the tutorial and of the how-to --------------------------------------------------------------------------
unset PYTHONUNBUFFERED  # with it a line is several writes, between which those of other ranks may come
programs=$out/programs
rm -rf "$programs"
mkdir -p "$programs/bin"
cp docs/tutorial/* docs/site/howto/*.[cp]* docs/site/howto/*.out docs/site/howto/CMakeLists.txt "$programs"
PATH=$programs/bin:$prefix/bin:$PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name heddle.pc)")
export PATH PKG_CONFIG_PATH
cd "$programs"

same() { # OUTPUT COMMAND: what the command prints, in the order of the alphabet, is in the file
  local printed
  printed=$(timeout 60 bash -ec "$2" </dev/null | LC_ALL=C sort) || { echo "check_site: $2: exit code $?"; exit 1; }
  diff <(LC_ALL=C sort "$1") <(echo "$printed") || { echo "check_site: $2: not the output that the page shows ($1)"; exit 1; }
  echo "check_site: $2: as shown"
}

run_lines() { # SCRIPT: the page shows its lines one by one, with the output of that program
  local line name
  while read -r line <&3; do
    name=${line##*/}
    name=${name##* }
    same "${name%.py}.out" "$line"
  done 3<"$1"
}

bash -e build.sh
run_lines run.sh
cmake -S . -B cmake -D CMAKE_PREFIX_PATH="$prefix" >cmake.log
cmake --build cmake >>cmake.log
same adopt.out "heddle run -n 2 cmake/adopt"
cc -std=gnu11 -Wall -Wextra -Werror loop.c $(pkg-config --cflags --libs heddle) -Wl,-rpath,"$(pkg-config --variable=libdir heddle)" -o loop
same loop.out "heddle run -n 2 ./loop"
if [[ -x $package ]]; then
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$package" >bin/python
  chmod +x bin/python
  run_lines run_python.sh
  same pair.out "python -m heddle.run -n 2 pair.py"
  python "$root/scripts/site_test.py" python "$root/docs/site/_heddle.pyi"
else
  echo "check_site: no Python with the package: its programs are not run"
fi
cd "$root"

"$python" scripts/site_test.py browser "$out/html" "$out/screenshots"
"$python" bench/report/page_test.py "$prefix/bin/heddle" "$out/screenshots"
