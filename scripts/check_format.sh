#!/usr/bin/env bash
# Checks, or with --fix makes, the format of every C and C++ file that git knows. Exit 1: files differ, each named.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."

formatter=${CLANG_FORMAT:-clang-format-19}
command -v "$formatter" >/dev/null || {
  echo "check_format: $formatter is missing; apt-get install clang-format-19" >&2
  exit 2
}
mapfile -t files < <(git ls-files -- '*.c' '*.h' '*.cpp' '*.hpp')
if ((${#files[@]} == 0)); then
  echo "check_format: git knows no C or C++ file here" >&2
  exit 2
fi
case ${1:-} in
  --fix) "$formatter" -i -- "${files[@]}" ;;
  '') "$formatter" --dry-run -Werror -- "${files[@]}" ;;
  *)
    echo "usage: check_format.sh [--fix]" >&2
    exit 2
    ;;
esac
echo "check_format: ${#files[@]} files"
