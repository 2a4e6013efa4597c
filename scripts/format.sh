#!/usr/bin/env bash
# Formats every C++ and CUDA source with clang-format 14 (other versions lay code out differently).
#   scripts/format.sh            rewrite
#   scripts/format.sh --check    say what would change, and fail if anything would
#   scripts/format.sh --tidy [PRESET]   run clang-tidy with the compile commands of build/PRESET (debug)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:-write}
folders=()
for folder in core autograd ops nn optim dist data apps tests; do
  [ -d "$folder" ] && folders+=("$folder")
done

sources() {
  find "${folders[@]}" -type f \( "$@" \) -print0
  [ ! -f weft.h ] || printf 'weft.h\0'
}

tool() {
  local name
  for name in "$1-14" "$1"; do
    if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
      echo "$name"
      return
    fi
  done
  echo "format: expected $1 14, got none of that version (Debian: apt-get install $1)" >&2
  exit 1
}

case $mode in
  write | --check)
    formatter=$(tool clang-format)
    options=(-i)
    [ "$mode" = write ] || options=(--dry-run --Werror)
    sources -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' |
      xargs -0 -r -n 40 -P "$(nproc)" "$formatter" --style=file "${options[@]}"
    ;;
  --tidy)
    build=build/${2:-debug}
    [ -f "$build/compile_commands.json" ] || {
      echo "format: expected $build/compile_commands.json; configure first: cmake --preset ${2:-debug}" >&2
      exit 1
    }
    tidy=$(tool clang-tidy)
    # Compile commands made for g++ carry warnings that clang does not know.
    sources -name '*.cpp' | grep -zv '^weft\.h$' | grep -zv '^tests/bench/peers/' |
      xargs -0 -r -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
    ;;
  *)
    sed -n '3,5s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
