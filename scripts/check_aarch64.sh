#!/usr/bin/env bash
# Builds for aarch64 (preset aarch64) and runs the tests of the rooms under qemu's user mode, as an A64FX.
#     check_aarch64.sh            all rooms up to the transports, with the conformance suite, and workers
#     check_aarch64.sh --quick    without the conformance suite and workers
#     check_aarch64.sh ROOM…      these folders, such as src/queue or tests/api
# It finds what does not compile or is wrong for this processor's word sizes, lines, calls and instructions. It does not find
# what its weaker memory order would break: qemu on x86 keeps the order of x86. For that there are ThreadSanitizer and
# tests/explore. Pages are of 4 KiB here, on Fugaku of 64.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."

rooms=(src/base src/queue src/wire src/memory src/bootstrap src/engine src/protocol src/transport/shm)
case ${1:-} in
  --quick) ;;
  '') rooms+=(src/transport src/worker) ;;
  -*)
    echo "usage: check_aarch64.sh [--quick | ROOM…]" >&2
    exit 2
    ;;
  *) rooms=("$@") ;;
esac

for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$tool" >/dev/null || {
    echo "check_aarch64: $tool is missing; apt-get install g++-aarch64-linux-gnu qemu-user-static googletest" >&2
    exit 2
  }
done

tree=build/aarch64
mkdir -p build
cmake --preset aarch64 >"$tree.configure.log" 2>&1 || {
  cat "$tree.configure.log"
  exit 1
}
ninja --quiet -C "$tree" "${rooms[@]/%//all}"
# A room's folder holds its tests; src/transport also those of the transports.
for room in "${rooms[@]}"; do
  [[ " ${rooms[*]} " == *" ${room%/*} "* ]] && continue
  echo "check_aarch64: $room"
  ctest --test-dir "$tree/$room" --output-on-failure --no-tests=error -j "$(nproc)" -LE 'slow|modes'
done
echo "check_aarch64: ${#rooms[@]} rooms"
