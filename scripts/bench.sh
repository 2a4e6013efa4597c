#!/usr/bin/env bash
# Measures Weft beside PyTorch (Python), libtorch (C++), for matrix products oneDNN alone, and for several ranks
# DeepSpeed and OpenMPI, interleaved A-B-B-A so that a machine that warms up or is shared hits all alike, and
# prints one table with ratios and targets.
#   scripts/bench.sh [--no-peers] [--rounds=N] [op] [matmul] [norm] [step] [resnet] [dist] [optim] [data]
# A round is one A-B-B-A; two rounds (the default) keep a burst of other load from falling on one side alone.
# The lines measured stay in build/bench/. resnet and dist take half an hour each and are measured only where they are named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peers=yes
rounds=2
groups=()
for argument in "$@"; do
  case $argument in
    --no-peers) peers=no ;;
    --rounds=[1-9]*) rounds=${argument#*=} ;;
    op | matmul | norm | step | resnet | dist | optim | data) groups+=("$argument") ;;
    *) echo "bench: expected --no-peers, --rounds=N, op, matmul, norm, step, resnet, dist, optim or data, got $argument" >&2; exit 2 ;;
  esac
done
[ ${#groups[@]} -gt 0 ] || groups=(op matmul norm step optim data)

weft=build/release/bin/weft
onednn=build/release/tests/onednn_peer
if [ ! -x "$weft" ]; then
  echo "bench: expected $weft; build first: cmake --preset release && cmake --build --preset release" >&2
  exit 1
fi

# Before any work of our own, so that it tells of others'.
read -r load _ </proc/loadavg

torch_python=
libtorch=build/peers/bin/libtorch_peer
missing=()
if [ "$peers" = yes ]; then
  scripts/peers.sh || true
  for python in build/peers/bin/python /usr/bin/python3; do
    if "$python" -c 'import torch' 2>/dev/null; then
      torch_python=$python
      break
    fi
  done
fi
[ -n "$torch_python" ] || missing+=(--missing torch)
if [ "$peers" = no ] || [ ! -x "$libtorch" ]; then
  libtorch=
  missing+=(--missing libtorch)
fi

results=build/bench/$(date +%Y%m%d-%H%M%S)
mkdir -p "$results"
stream=$results/stream_copy
g++ -O3 -march=native -std=c++20 -fopenmp tests/bench/peers/stream_copy.cpp -o "$stream"

mpi_peer=
# One program, one workload, once. A peer that does not know a workload exits 3; any other failure is reported
# and leaves its column empty.
once() {
  local tool=$1 workload=$2 status=0 file
  shift 2
  file=$results/$workload.${tool%_ranks}.jsonl
  case $tool in
    weft) "$weft" bench "$@" --json "$results/line" >/dev/null || status=$? ;;
    torch) "$torch_python" tests/bench/peers/torch_peer.py "$@" --json "$results/line" >/dev/null || status=$? ;;
    # A rank that does not come must not stop everything else.
    torch_ranks | deepspeed) timeout 900 "$torch_python" tests/bench/peers/torch_ranks_peer.py "$@" --engine "${tool%_ranks}" \
      --json "$results/line" >>"$results/$tool.log" 2>&1 || status=$? ;;
    openmpi) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 "$mpi_peer" "$@" \
      --json "$results/line" >/dev/null || status=$? ;;
    # Weft in another way, for what a strategy or a second rank costs.
    weft_ddp) instead "--strategy ddp" "$@" ;;
    weft_single) instead "--strategy single" "$@" ;;
    weft_one_rank) instead "--workers 1 --threads 2" "$@" ;;
    libtorch) "$libtorch" "$@" --json "$results/line" >/dev/null || status=$? ;;
    onednn) "$onednn" "$@" --json "$results/line" >/dev/null || status=$? ;;
    stream) "$stream" "$@" --json "$results/line" >/dev/null || status=$? ;;
  esac
  if [ $status -ne 0 ] && [ $status -ne 3 ]; then
    echo "bench: $tool $* failed with exit code $status; see what is in $results" >&2
  fi
  [ ! -f "$results/line" ] || cat "$results/line" >>"$file"
  rm -f "$results/line"
}

# instead "--FLAG VALUE..." ARGUMENT...: weft, with these values in place of the arguments' own.
instead() {
  local values i j
  read -ra values <<<"$1"
  shift
  local changed=("$@")
  for ((i = 0; i + 1 < ${#changed[@]}; i++)); do
    for ((j = 0; j < ${#values[@]}; j += 2)); do
      [ "${changed[i]}" != "${values[j]}" ] || changed[i + 1]=${values[j + 1]}
    done
  done
  "$weft" bench "${changed[@]}" --json "$results/line" >/dev/null || status=$?
}

# interleaved WORKLOAD ARGUMENT...: weft and PyTorch in both its forms.
interleaved() {
  local order=(weft)
  [ -z "$torch_python" ] || order+=(torch)
  [ -z "$libtorch" ] || order+=(libtorch)
  in_turn "${order[*]}" "$@"
}

# in_turn "TOOL..." WORKLOAD ARGUMENT...: forth and back, so that no tool always comes first.
in_turn() {
  local order tool round i workload=$2
  read -ra order <<<"$1"
  shift 2
  echo "bench: $*" >&2
  for ((round = 0; round < rounds; round++)); do
    for tool in "${order[@]}"; do once "$tool" "$workload" "$@"; done
    for ((i = ${#order[@]} - 1; i >= 0; i--)); do once "${order[i]}" "$workload" "$@"; done
  done
}

for group in "${groups[@]}"; do
  case $group in
    op)
      interleaved op op --threads 1
      ;;
    matmul)
      for threads in 1 2; do
        in_turn "weft onednn" matmul op --case matmul_1024_f32 --threads "$threads"
        in_turn "weft onednn" matmul op --case matmul_1024_bf16 --threads "$threads"
      done
      ;;
    norm)
      # Memory speed is measured before and after, in the same minutes as what is held against it.
      once stream stream stream --threads 2
      in_turn "weft${torch_python:+ torch}" norm op --case bn_add_relu --threads 2
      once stream stream stream --threads 2
      ;;
    step)
      interleaved mlp_b8 step --model mlp --global-batch 8 --threads 1
      interleaved mlp_b64 step --model mlp --global-batch 64 --threads 1
      interleaved cnn_b128 step --model cnn --global-batch 128 --threads 1
      interleaved cnn_b128 step --model cnn --global-batch 128 --threads 2
      ;;
    resnet)
      both="weft${torch_python:+ torch}"
      for dtype in f32 bf16; do
        in_turn "$both" "resnet50_$dtype" step --model resnet50 --global-batch 16 --dtype "$dtype" --threads 2
        in_turn "$both" "resnet18_$dtype" step --model resnet18 --global-batch 32 --dtype "$dtype" --threads 2
      done
      in_turn "$both" resnet20_b128 step --model resnet20 --global-batch 128 --threads 2
      in_turn "$both" resnet20_b8 step --model resnet20 --global-batch 8 --threads 2
      ;;
    dist)
      if [ "$peers" = yes ] && mpirun --version 2>/dev/null | grep -q "Open MPI"; then
        mpi_peer=$results/mpi_peer
        mpicc -O2 tests/bench/peers/mpi_peer.c -o "$mpi_peer" || mpi_peer=
      fi
      ranks="weft${torch_python:+ torch_ranks}"
      two=(--workers 2 --threads 1)
      gpt_alone=(--model gpt --untied --global-batch 16 --optimizer adamw)
      gpt=("${gpt_alone[@]}" "${two[@]}")
      once stream stream stream --threads 2
      in_turn "weft${mpi_peer:+ openmpi}" shm comm --backend shm --workers 2 --bytes 1024,4096,4194304,100000000
      for op in reduce_scatter all_gather; do
        in_turn "weft${mpi_peer:+ openmpi}" shm comm --op $op --backend shm --workers 2 --bytes 4194304,100000000
      done
      once stream stream stream --threads 2
      in_turn "$ranks" shm_4_ranks comm --backend shm --workers 4 --bytes 1024,4194304,100000000
      in_turn "$ranks" tcp comm --backend tcp --workers 2 --bytes 1024,4194304,100000000
      in_turn "$ranks" mlp_ddp step --model mlp --global-batch 64 --strategy ddp "${two[@]}"
      in_turn "$ranks" cnn_ddp step --model cnn --global-batch 128 --strategy ddp "${two[@]}"
      in_turn "weft weft_one_rank" cnn_2_ranks step --model cnn --global-batch 128 --strategy ddp "${two[@]}"
      in_turn "$ranks" gpt_ddp step "${gpt[@]}" --strategy ddp
      in_turn "weft weft_ddp${torch_python:+ torch_ranks deepspeed}" gpt_fsdp step "${gpt[@]}" --strategy fsdp
      for strategy in zero1 zero2; do
        in_turn "weft${torch_python:+ deepspeed}" "gpt_$strategy" step "${gpt[@]}" --strategy "$strategy"
      done
      for strategy in ddp fsdp; do
        in_turn "weft weft_single" "gpt_1_rank_$strategy" step "${gpt_alone[@]}" --workers 1 --threads 2 --strategy "$strategy"
      done
      ;;
    optim)
      for optimizer in sgd adamw; do
        # Memory speed is measured before and after, in the same minutes as what is held against it.
        once stream stream stream --threads 2
        interleaved "optim_$optimizer" optim --optimizer "$optimizer" --parameters 25000000 --threads 2
        once stream stream stream --threads 2
      done
      [ -z "$torch_python" ] || once torch stream stream --threads 2
      ;;
    data)
      # Photographs that weft makes up, the same for both.
      "$weft" bench data --photographs "$results/photographs" >/dev/null
      in_turn "weft${torch_python:+ torch}" data data --threads 1 --photographs "$results/photographs"
      rm -rf "$results/photographs"
      ;;
  esac
done
rm -f "$stream" "$results/mpi_peer"

python3 scripts/bench_table.py --parameters 25000000 --load "$load" "${missing[@]}" "$results"
