#!/usr/bin/env bash
# The documentation as a site of static files: build/site/html. Warnings are errors.
#
#   scripts/build_site.sh
#
#   HEDDLE_TOOL=build/release/tools/heddle    the page of the command gets what this tool says by --help
#   SITE_REPOSITORY=https://…/blob/main       files outside of docs/ are links to there; unset: they are pages of the site
#   SITE_OUTPUT=FOLDER                        instead of build/site; absolute, or relative to the root
#
# It needs python3 with venv, a C and C++ compiler (their headers), and PyPI, from which docs/site/requirements.txt is installed into build/site/venv.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
out=${SITE_OUTPUT:-build/site}
python=$out/venv/bin/python

if ! python3 -c 'import ensurepip' 2>/dev/null; then
  (($(id -u) == 0)) && sudo= || sudo=sudo
  $sudo apt-get -qq update && $sudo apt-get -qq install -y python3-venv
fi
mkdir -p "$out"
if [[ ! -x $python ]]; then
  rm -f "$out/requirements.txt" # says what is installed in the environment
  python3 -m venv "$out/venv"
fi
if ! cmp -s docs/site/requirements.txt "$out/requirements.txt"; then
  "$python" -m pip install -q --disable-pip-version-check -r docs/site/requirements.txt
  cp docs/site/requirements.txt "$out/requirements.txt"
fi

export PYTHONPATH=docs/site PYTHONDONTWRITEBYTECODE=1
"$python" -m generate.stage . "$out/source" --tool "${HEDDLE_TOOL:-}" --repository "${SITE_REPOSITORY:-}"
rm -rf "$out/html" "$out/doctrees"
"$python" -m sphinx -q -j "$(nproc)" -W --keep-going -c docs/site -d "$out/doctrees" "$out/source" "$out/html"
rm -rf "$out/html/.doctrees" "$out/html/.buildinfo" "$out/html/objects.inv.tmp"
echo "build_site: $(find "$out/html" -name '*.html' | wc -l) pages in $out/html; open $out/html/index.html"
