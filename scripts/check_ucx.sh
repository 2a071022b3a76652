#!/usr/bin/env bash
# The ucx transport with a newer UCX than the system's: the release of a Python wheel (pinned below). It is compiled with that release's headers, and
# the programs of a tree, which were built with the system's, run with that release's library.
#
#   scripts/check_ucx.sh TREE [FLAKY]     TREE: a build with tests, such as build/dev. FLAKY: a file to which what fails and passes alone is
#                                         added. Exit 77: the wheel cannot be had; 1: something has failed
set -uo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." || exit 2
if (($# < 1 || $# > 2)); then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
  exit 2
fi
release="libucx-cu12==1.22.0"
place=build/ucx_wheel
inside=$place/libucx
tree=$1
flaky=${2:-}

if [[ ! -f $inside/lib/libucp.so.0 ]]; then
  rm -rf "$place"
  python3 -m pip --quiet --disable-pip-version-check install --no-deps --target "$place" "$release" >"build/ucx_wheel.log" 2>&1 || {
    tail -3 build/ucx_wheel.log
    echo "check_ucx: skipped: $release cannot be had"
    exit 77
  }
fi

failed=0
for source in src/transport/ucx/*.cpp; do
  case $source in *_test.cpp) continue ;; esac
  c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -fno-rtti -Isrc -Iinclude -isystem "$inside/include" "$source" || failed=1
done
((failed == 0)) && echo "check_ucx: compiled with the headers of $release"

export LD_LIBRARY_PATH=$PWD/$inside/lib HEDDLE_LIBRARIES=ucx=libucp.so.0
said=$("$tree/tools/heddle" info transports ucx)
echo "$said" | grep 'set up as'
[[ $said == *"UCX 1.22"* ]] || { echo "check_ucx: another UCX was opened"; failed=1; }
ctest --test-dir "$tree" --output-on-failure --no-tests=error -R '^conformance_ucx_(tcp|posix|joint)$' ||
  { [[ -n $flaky ]] && scripts/retry_failed.py "$tree" "$flaky"; } || failed=1
exit $failed
