#!/usr/bin/env bash
# Prepares the programs Weft's speed is compared with: PyTorch in build/peers, and the C++ peer built against
# that same PyTorch. scripts/bench.sh runs with whatever of this is there, and says what is not.
# WEFT_TORCH_INDEX may name a package index that holds a CPU-only PyTorch, a much smaller download.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/peers
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3)

if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  mkdir -p build
  "$python" -m venv --clear "$venv"
  index=()
  [ -z "${WEFT_TORCH_INDEX:-}" ] || index=(--index-url "$WEFT_TORCH_INDEX")
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check "${index[@]}" torch numpy; then
    echo "peers: pip could not install torch" >&2
    if "$python" -c 'import torch' 2>/dev/null; then
      echo "peers: falling back on the system's own torch (Debian: python3-torch)" >&2
      "$python" -m venv --clear --system-site-packages "$venv"
    else
      echo "peers: no PyTorch; Debian's is the package python3-torch" >&2
      rm -rf "$venv"
      exit 1
    fi
  fi
fi

# A source newer than the program, or another PyTorch, means building again.
version=$("$venv/bin/python" -c 'import torch; print(torch.__version__)')
peer=$venv/bin/libtorch_peer
source=tests/bench/peers/libtorch_peer.cpp
if [ ! -x "$peer" ] || [ "$source" -nt "$peer" ] || [ "$(cat "$peer.version" 2>/dev/null)" != "$version" ]; then
  mapfile -t flags < <("$venv/bin/python" - <<'PYTHON'
import os, torch
root = os.path.dirname(torch.__file__)
for path in ("include", "include/torch/csrc/api/include"):
    print("-isystem" + os.path.join(root, path))
print("-L" + os.path.join(root, "lib"))
print("-Wl,-rpath," + os.path.join(root, "lib"))
print("-D_GLIBCXX_USE_CXX11_ABI=%d" % torch.compiled_with_cxx11_abi())
PYTHON
)
  if g++ -O2 -std=c++20 "$source" -o "$peer" "${flags[@]}" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10; then
    echo "$version" >"$peer.version"
  else
    rm -f "$peer"
    echo "peers: the C++ peer does not build against PyTorch $version" >&2
    exit 1
  fi
fi
echo "peers: PyTorch $version, from Python and from C++"
