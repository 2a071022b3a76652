#!/usr/bin/env bash
# The Debian packages, as who installs them sees them: each set is installed into a root of its own, with nothing but a minimal Debian in it, used, and
# purged, after which nothing of it may be left. Needs root, debootstrap, and a Debian mirror.
#
#   scripts/check_packages.sh [SUITE…]     bookworm trixie unless given; builds in build/packages
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
suites=("${@:-bookworm}")
(($#)) || suites=(bookworm trixie)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
[[ $(id -u) == 0 ]] || { echo "check_packages: a root of its own needs root"; exit 2; }

cmake --preset packages >build/packages.configure.log
ninja --quiet -C build/packages heddle_installables example_hello
rm -rf build/packages/deb
cpack --config build/packages/CPackConfig.cmake -B build/packages/deb >build/packages.cpack.log 2>&1 || { cat build/packages.cpack.log; exit 1; }
ls build/packages/deb/*.deb

files() { (cd "$1" && find . -xdev -not -path './proc/*' -not -path './sys/*' -not -path './dev/*' -not -path './var/log/*' \
  -not -path './var/cache/*' -not -path './var/lib/dpkg/*' -not -path './var/lib/apt/*' -not -path './tmp/*' | sort); }

for suite in "${suites[@]}"; do
  echo "==== $suite"
  root=$(mktemp -d)
  inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
  finish() { umount -l "$root/proc" "$root/dev/shm" 2>/dev/null || true; rm -rf --one-file-system -- "$root"; }
  trap finish EXIT
  debootstrap --variant=minbase --include=g++,pkg-config,cmake,make "$suite" "$root" "$mirror" >build/packages.debootstrap.log 2>&1 ||
    { tail -5 build/packages.debootstrap.log; exit 1; }
  mount -t proc proc "$root/proc"
  mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"
  cp build/packages/deb/*.deb "$root/tmp"
  cp build/packages/examples/example_hello examples/hello.cpp tests/install/shmem_user.c "$root/tmp"
  inside apt-get -q update >/dev/null
  # What apt brings with them (hwloc, UCX, PMIx) stays: it is not ours.
  inside apt-get -q install -y libhwloc15 libpmix2* libucx0 >build/packages.apt.log 2>&1 || { tail -5 build/packages.apt.log; exit 1; }
  files "$root" >build/packages.before
  inside sh -c 'apt-get -q install -y --no-install-recommends /tmp/*.deb' >>build/packages.apt.log 2>&1 || { tail -20 build/packages.apt.log; exit 1; }

  inside heddle info transports >/dev/null
  inside heddle run -n 3 /tmp/example_hello
  inside heddle run -n 2 heddle info --job
  inside sh -ec '
    cd /tmp
    c++ -std=c++20 hello.cpp $(pkg-config --cflags --libs heddle) -o hello && heddle run -n 2 ./hello
    oshcc.heddle shmem_user.c -o shmem_user && oshrun.heddle -n 2 ./shmem_user
    mkdir user && cd user
    printf "%s\n" "cmake_minimum_required(VERSION 3.25)" "project(user CXX)" "find_package(heddle 0.3 REQUIRED COMPONENTS heddle shmem)" \
      "add_executable(hello ../hello.cpp)" "target_link_libraries(hello heddle::heddle)" >CMakeLists.txt
    cmake -B build . >/dev/null && cmake --build build >/dev/null && heddle run -n 2 build/hello'
  inside sh -c 'apt-get -q purge -y "libheddle*" "heddle*"' >>build/packages.apt.log 2>&1 || { tail -20 build/packages.apt.log; exit 1; }
  files "$root" >build/packages.after
  if ! diff build/packages.before build/packages.after; then
    echo "check_packages: $suite: the files above were left, or taken"
    exit 1
  fi
  finish
  trap - EXIT
  echo "$suite: installed, used, purged; nothing is left"
done
