#!/usr/bin/env bash
# Kills runs of mnist, in every phase of a step and in every operation of a save: a rank, the supervisor,
# or all, as a seed has it. Each must go on from a whole checkpoint, end with the bits of a run that
# nothing has happened to, and leave no file, shared memory or process behind.
#   scripts/kill_test.sh [KILLS] [BUILD]        200 kills by default, in a build in build/release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kills=${1:-200}
build=${2:-build/release}
program=$build/tests/test_apps
[[ $kills =~ ^[1-9][0-9]*$ ]] || { echo "kill_test: expected a number of kills, got '$kills'" >&2; exit 2; }
[ -x "$program" ] || { echo "kill_test: expected $program, got none: build it first" >&2; exit 1; }

WEFT_KILLS=$kills "$program" --gtest_filter='Survival.*'
echo "kill_test: $kills kills survived"
