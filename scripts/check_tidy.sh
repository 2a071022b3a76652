#!/usr/bin/env bash
# clang-tidy over the libraries and the tool, with the compile commands of a build tree. Exit 1: findings, each printed.
#     check_tidy.sh BUILD_TREE [REGEX of paths]
set -euo pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "$0")")/..")

tree=$(readlink -f -- "${1:?usage: check_tidy.sh BUILD_TREE [REGEX]}")
only=${2:-.}
[[ -f $tree/compile_commands.json ]] || {
  echo "check_tidy: $tree has no compile_commands.json; configure it first" >&2
  exit 2
}
mapfile -t files < <(cd -- "$root" && git ls-files -- 'src/*.cpp' 'tools/*.cpp' 'shmem/*.cpp' | grep -vE '_test\.cpp$|/conformance[^/]*$|^shmem/tests/' | grep -E "$only")
# Only what the tree compiles: a file outside every target has no command, and clang-tidy would guess one.
mapfile -t files < <(for file in "${files[@]}"; do
  grep -qF "\"file\": \"$root/$file\"" "$tree/compile_commands.json" && echo "$root/$file"
done)
((${#files[@]})) || {
  echo "check_tidy: nothing to check" >&2
  exit 2
}
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "${CLANG_TIDY:-clang-tidy-19}" -p "$tree" --quiet 2>/dev/null
echo "check_tidy: ${#files[@]} files"
