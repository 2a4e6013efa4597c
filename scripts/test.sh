#!/usr/bin/env bash
# Sets up, builds and runs every test.
#   scripts/test.sh [--preset release|debug|asan|tsan|cuda] [ctest option...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
while [ $# -gt 0 ]; do
  case $1 in
    --preset) [ $# -ge 2 ] || { echo "test: --preset expects a name" >&2; exit 2; }; preset=$2; shift 2 ;;
    --preset=*) preset=${1#*=}; shift ;;
    -h | --help) sed -n '2,3s/^# *//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done

scripts/setup.sh
cmake --preset "$preset"
cmake --build --preset "$preset"
# The last lines are ctest's own: how many tests passed, and which did not.
exec ctest --preset "$preset" -j "$(nproc)" "$@"
