#!/usr/bin/env bash
# Runs ranks on two hosts: network namespaces with a cable between them and addresses of their own. Sets
# them up, runs, and takes them down again. Needs root, iproute2, and a build in build/release (or BUILD).
#   scripts/two_hosts_test.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=$PWD/${1:-build/release}
program=$build/tests/ranks_program
names=(weft-$$-0 weft-$$-1)
network=10.213.7
failures=0

say() { echo "two_hosts_test: $*"; }
fail() { echo "two_hosts_test: $*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "expected root, which makes network namespaces, got user $(id -un)"
command -v ip >/dev/null || fail "expected ip (package iproute2), got none"
[ -x "$program" ] || fail "expected the test program $program, got none: build it first"

folder=$(mktemp -d)
take_down() {
  local name
  for name in "${names[@]}"; do
    ip netns pids "$name" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$name" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap take_down EXIT

for name in "${names[@]}"; do
  ip netns add "$name"
done
ip -n "${names[0]}" link add cable type veth peer name cable netns "${names[1]}"
for host in 0 1; do
  ip -n "${names[host]}" addr add "$network.$((host + 1))/24" dev cable
  ip -n "${names[host]}" link set cable up
  ip -n "${names[host]}" link set lo up
done

port=29400
# rank HOST RANK SIZE LOCAL_RANK LOCAL_SIZE PROGRAM...: one rank, its output in $folder/RANK.
rank() {
  local host=$1 rank=$2 size=$3 local_rank=$4 local_size=$5
  shift 5
  (cd "$folder" && exec ip netns exec "${names[host]}" env RANK="$rank" WORLD_SIZE="$size" LOCAL_RANK="$local_rank" \
    LOCAL_WORLD_SIZE="$local_size" MASTER_ADDR="$network.1" MASTER_PORT="$port" timeout 120 "$@") \
    >"$folder/$rank" 2>&1 </dev/null &
  pids[rank]=$!
}

# all_end CODES TEXT...: waits for the ranks, compares their exit codes, looks for each text in all outputs
# together.
all_end() {
  local codes=$1 got='' pid text
  shift
  for pid in "${pids[@]}"; do
    local code=0
    wait "$pid" 2>/dev/null || code=$?
    got+="$code "
  done
  if [ "${got% }" != "$codes" ]; then
    say "FAILED: expected the exit codes $codes, got ${got% }"
    tail -n 20 "$folder"/[0-9]*
    failures=$((failures + 1))
  fi
  for text in "$@"; do
    cat "$folder"/[0-9]* | grep -qE -- "$text" && continue
    say "FAILED: expected '$text' in the output"
    tail -n 20 "$folder"/[0-9]*
    failures=$((failures + 1))
  done
  rm -f "$folder"/[0-9]*
  pids=()
  port=$((port + 1))
}
pids=()

say "a rank on each host"
rank 0 0 2 0 1 "$program"
rank 1 1 2 0 1 "$program"
all_end '0 0' 'rank 0 of 2: sum 3, backend tcp' 'rank 1 of 2: sum 3, backend tcp'

say "two ranks on each host"
for r in 0 1 2 3; do
  rank $((r / 2)) "$r" 4 $((r % 2)) 2 "$program"
done
all_end '0 0 0 0' 'rank 0 of 4: sum 10, backend tcp' 'rank 3 of 4: sum 10, backend tcp'

sent() { ip netns exec "${names[0]}" cat /sys/class/net/cable/statistics/tx_bytes; }

say "two ranks on each host carry their data to the other host once"
before=$(sent)
for r in 0 1 2 3; do
  rank $((r / 2)) "$r" 4 $((r % 2)) 2 "$program" --act large
done
all_end '0 0 0 0' 'rank 0 of 4: sum 10, backend tcp'
megabytes=$((($(sent) - before) / 1000000))
# 8 sums of 4 MiB: each of the two ranks sends a quarter of it as parts and a quarter as results.
say "  $megabytes MB left the host for 8 sums of 4.2 MB"
if [ "$megabytes" -lt 20 ] || [ "$megabytes" -gt 48 ]; then
  say "FAILED: expected about 34 MB, got $megabytes"
  failures=$((failures + 1))
fi

# same_bits APP FLAGS...: the losses and the exported parameters of the app by four ranks on two hosts are those of
# one rank on one host.
same_bits() {
  local app=$1 r
  shift
  local flags=("$@" --logical-shards 8 --seed 3 --threads 1 --quiet)
  "$build/bin/$app" "${flags[@]}" --run-dir "$folder/alone" --export "$folder/alone.safetensors" >/dev/null
  for r in 0 1 2 3; do
    rank $((r / 2)) "$r" 4 $((r % 2)) 2 "$build/bin/$app" "${flags[@]}" --strategy fsdp --run-dir "$folder/apart" \
      --export "$folder/apart.safetensors"
  done
  all_end '0 0 0 0'
  if ! cmp -s <(grep -o '"loss_bits":"[0-9a-f]*"' "$folder/alone/metrics.jsonl") \
    <(grep -o '"loss_bits":"[0-9a-f]*"' "$folder/apart/metrics.jsonl"); then
    say "FAILED: the losses differ"
    failures=$((failures + 1))
  fi
  if ! cmp -s "$folder/alone.safetensors" "$folder/apart.safetensors"; then
    say "FAILED: the exported parameters differ"
    failures=$((failures + 1))
  fi
  rm -rf "$folder"/alone* "$folder"/apart*
}

for backend in tcp gloo; do
  say "gpt by fsdp on two hosts over $backend has the bits of one rank on one"
  same_bits gpt --data "$PWD/LICENSE" --steps 12 --layers 2 --width 128 --heads 4 --context 64 --global-batch 16 \
    --backend "$backend"
done
if [ -d /usr/share/datasets/fashion-mnist ]; then
  say "mnist by fsdp on two hosts has the bits of one rank on one"
  same_bits mnist --model cnn --steps 12
fi

say "a rank that dies on the other host"
rank 0 0 2 0 1 "$program" --act kill
rank 1 1 2 0 1 "$program" --act kill
all_end '1 137' 'got no rank 1: it died'

[ "$failures" -eq 0 ] || fail "$failures failed"
say "all passed"
