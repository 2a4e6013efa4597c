#!/usr/bin/env bash
# Installs what building Weft needs and is missing: Debian packages, and oneDNN under build/deps.
# With everything in place it changes nothing and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(g++ cmake ninja-build git python3 python3-venv libeigen3-dev nlohmann-json3-dev libcli11-dev
  libspdlog-dev libgloo-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libgtest-dev libgmock-dev libbenchmark-dev dataset-fashion-mnist)
onednn_wheels=(onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0)
onednn_minimum=3.2
deps=build/deps

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

install_packages() {
  local missing=() name
  for name in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    fail "expected apt-get (Debian 12), got none. Install by hand: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "expected root or sudo to install packages, got neither. Ask for: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  # Another repository of the machine may be out of order without touching what is needed here.
  "${as_root[@]}" apt-get update -q ||
    say "apt-get update failed; trying with the package lists at hand"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install ${missing[*]} (its message is above; is there a network?)"
}

# The version in a folder that holds oneDNN's CMake package, or nothing.
onednn_version() {
  sed -n 's/^set(PACKAGE_VERSION "\([0-9.]*\)").*/\1/p' "$1/dnnl-config-version.cmake" 2>/dev/null | head -n 1
}

onednn_is_there() {
  local folder version
  for folder in "$deps"/lib/cmake/dnnl /usr/local/lib/cmake/dnnl /usr/lib/*/cmake/dnnl /usr/lib/cmake/dnnl; do
    version=$(onednn_version "$folder")
    [ -n "$version" ] || continue
    if dpkg --compare-versions "$version" ge "$onednn_minimum" && dpkg --compare-versions "$version" lt 4; then
      return 0
    fi
  done
  return 1
}

install_onednn() {
  onednn_is_there && return 0
  # Debian's own python: one from elsewhere may lack venv or vanish under the environment.
  local python=/usr/bin/python3
  [ -x "$python" ] || python=$(command -v python3) || fail "expected python3, got none"
  say "installing oneDNN into $deps"
  mkdir -p build
  "$python" -m venv --clear "$deps" || fail "could not make the virtual environment $deps"
  "$deps/bin/pip" install --quiet --disable-pip-version-check "${onednn_wheels[@]}" ||
    fail "pip could not install ${onednn_wheels[*]} (its message is above; is there a network?)"
  onednn_is_there ||
    fail "expected oneDNN $onednn_minimum or newer in $deps/lib/cmake/dnnl, got '$(onednn_version "$deps/lib/cmake/dnnl")'"
}

check_compiler() {
  local version
  version=$(g++ -dumpversion) || fail "expected g++, got none"
  [ "${version%%.*}" -ge 12 ] || fail "expected g++ 12 or newer for C++20, got $version"
}

install_packages
check_compiler
install_onednn
say "everything is in place"
