#!/usr/bin/env bash
# From a fresh Debian 12 to a trained network: sets up, builds, and trains the MNIST network on the
# Fashion-MNIST images that Debian packages.
#   scripts/demo.sh [mnist option...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
cmake --preset release
cmake --build --preset release --target app_mnist

images=$(dpkg-query -L dataset-fashion-mnist | grep '/train-images-idx3-ubyte' | head -n 1)
[ -n "$images" ] || { echo "demo: the package dataset-fashion-mnist holds no training images" >&2; exit 1; }
data=$(dirname "$images")
run=runs/demo-$(date +%Y%m%d-%H%M%S)

build/release/bin/mnist --model cnn --epochs 5 --workers 2 --strategy fsdp --data "$data" --run-dir "$run" "$@"

python3 - "$run" <<'PYTHON'
import json, sys
run = sys.argv[1]
with open(run + "/result.json") as file:
    result = json.load(file)
final = result.get("final", {})
print()
print(f"Trained {result['app']} (cnn) on Fashion-MNIST: {result['epochs']} epochs, {result['steps']} steps, "
      f"{result['wall_seconds']:.0f} s, {result['strategy']} on {result['world_size']} ranks.")
if final.get("test_accuracy") is not None:
    print(f"It names {100 * final['test_accuracy']:.2f}% of the 10,000 test images rightly.")
print(f"The result is in {run}/result.json, the steps in {run}/metrics.jsonl.")
PYTHON
