#!/usr/bin/env bash
# Trains small models under every strategy on 1, 2 and 4 ranks (processes) and prints one table: bytes of model state
# that rest on a rank and bytes that it sends in a step, measured, beside the formulas. Fails where any of them differ.
#   scripts/state_table.sh            # prints Markdown
#   scripts/state_table.sh --write    # and keeps it as docs/course/table.md
#   scripts/state_table.sh --check    # and expects docs/course/table.md to say the same
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 scripts/state_table.py "$@"
