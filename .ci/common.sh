# What .ci/run and .ci/nightly share: sourced by both, in the root of the clone.
export LC_ALL=C.UTF-8 NINJA_STATUS='[%f/%t %es] '
export ASAN_OPTIONS=handle_sigill=1  # undefined behaviour is a trap there
unset "${!GTEST_@}" TEST_SHARE TEST_PROCESSES  # a shell in which some tests were tried leaves out none here
jobs=$(nproc)
started=$SECONDS
passed=()
options=()

summary() {
  echo
  echo "---- summary -----------------------------------------------------------"
  printf '%s\n' "${passed[@]}"
  [[ ! -s $flaky ]] || sed 's/^/FLAKY    /' "$flaky"
}

# Into `used`: seconds of a processor that ended children of this shell have taken, without what ran beside the checks (.ci/run). A subshell
# has children of its own.
beside=0
count_used() {
  local file=build/times.$BASHPID ended=0
  times >"$file"
  used=$(awk -F'[ms ]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$file")
  rm -f "$file"
  [[ ! -s build/aside.seconds ]] || read -r _ ended <build/aside.seconds
  used=$((used - beside - ended))
}

# pass WHAT SECONDS PROCESSOR-SECONDS, and fail WHAT SECONDS COMMAND…, which ends the run.
pass() { passed+=("passed   $1 ($2 s, $3 s of a processor)"); }
fail() {
  stop_aside
  summary
  echo "FAILED   $1 ($2 s): ${*:3}"
  exit 1
}

# check WHAT COMMAND…: runs it, says how long it took. If it fails .ci/run ends, .ci/nightly goes on.
check() {
  local what=$1 begin=$SECONDS used used_before
  count_used
  used_before=$used
  shift
  echo
  echo "==== $what"
  if "$@"; then
    count_used
    pass "$what" $((SECONDS - begin)) $((used - used_before))
  else
    fail "$what" $((SECONDS - begin)) "$@"
  fi
}

# Ends what runs beside the checks. .ci/run has such work, and says how.
stop_aside() { :; }

install_packages() { # install_packages LIST…
  local missing=() package
  for package in $(sed 's/#.*//' "$@"); do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo)
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 && return
  "${apt[@]}" update >/dev/null && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

build() { # build PRESET [TARGETS…]; in `options` what else cmake is told
  local preset=$1
  shift
  cmake --preset "$preset" "${options[@]}" >"build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log"; return 1; }
  ninja --quiet -C "build/$preset" "$@"
}

# Compile commands of single sources, and the headers that are made: clang-tidy looks at a source at a time.
tidy() { # tidy ARGS…: those go to check_tidy.py
  cmake --preset fuzz -B build/tidy -D HEDDLE_UNITY=OFF -D HEDDLE_PRECOMPILE=OFF >build/tidy.configure.log 2>&1 || { cat build/tidy.configure.log; return 1; }
  ninja --quiet -C build/tidy heddle_made && scripts/check_tidy.py build/tidy "$@"
}

# What fails is tried again alone, at most twice. What passes then is flaky: the summary lists it, and it is a defect to mend.
flaky=build/flaky.txt
forget_failures() { rm -f "build/$1/Testing/Temporary/LastTestsFailed.log"; }
tests() { # tests TREE ARGS…: those go to ctest
  forget_failures "$1"
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}" || scripts/retry_failed.py "build/$1" "$flaky"
}

# The same sources are built several times.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_DEPEND=1  # what is not in the cache is not preprocessed first
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # else it knows nothing of what has a precompiled header
}
