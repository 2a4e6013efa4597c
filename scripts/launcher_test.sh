#!/usr/bin/env bash
# Runs ranks under the real launchers of Debian: mpirun, and srun with a Slurm of one node that is set up in
# a temporary folder and taken down again; and under torchrun where there is one (TORCHRUN, on PATH, or what
# scripts/peers.sh brings). Needs root, and a build in build/release (or BUILD).
#   scripts/launcher_test.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
root=$PWD
program=$PWD/$build/tests/ranks_program
packages=(openmpi-bin slurm-wlm munge)
failures=0

say() { echo "launcher_test: $*"; }
fail() { echo "launcher_test: $*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "expected root, which Slurm's daemons need, got user $(id -un)"
[ -x "$program" ] || fail "expected the test program $program, got none: build it first"
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  apt-get update -q || say "apt-get update failed; trying with the package lists at hand"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

folder=$(mktemp -d)
chmod 755 "$folder"  # munge looks at the folders above its socket
daemons=(slurmd slurmctld munged)
take_down() {
  local name pid
  for name in "${daemons[@]}"; do
    pid=$(cat "$folder/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap take_down EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

set_up_slurm() {
  local node
  node=$(hostname -s)
  mkdir "$folder/state" "$folder/spool"
  (umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
  munged --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
    --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
  cat >"$folder/slurm.conf" <<CONF
ClusterName=weft
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
ReturnToService=2
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmdSpoolDir=$folder/spool
StateSaveLocation=$folder/state
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SwitchType=switch/none
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$folder/slurm.conf
  slurmctld -f "$SLURM_CONF"
  slurmd -f "$SLURM_CONF"
  for _ in $(seq 100); do
    [ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && return 0
    sleep 0.2
  done
  cat "$folder"/slurm*.log >&2
  fail "expected an idle Slurm node within 20 seconds, got $(sinfo -h -o %t 2>&1)"
}

# expect CODE TEXT COMMAND...: runs it, looks for the exit code and for every line of TEXT in the output.
expect() {
  local code=$1 text=$2 got=0 output line
  shift 2
  output=$(timeout 120 "$@" 2>&1 </dev/null) || got=$?
  if [ "$got" -ne "$code" ]; then
    say "FAILED: expected exit code $code, got $got: $*"
    echo "$output"
    failures=$((failures + 1))
    return 0
  fi
  while IFS= read -r line; do
    if ! grep -qF -- "$line" <<<"$output"; then
      say "FAILED: expected '$line' in the output of: $*"
      echo "$output"
      failures=$((failures + 1))
      return 0
    fi
  done <<<"$text"
  say "passed: $*"
}

# same_bits NAME COMMAND...: mnist under a launcher gives the losses and the export of --workers 2.
mnist=$(dirname "$program")/../bin/mnist
training=(--model cnn --steps 12 --strategy zero2 --logical-shards 4 --threads 1 --quiet)
losses() { grep -o '"loss_bits":"[0-9a-f]*"' "$folder/$1/metrics.jsonl"; }
same_bits() {
  local name=$1 reference=workers
  shift
  [ -d "$folder/$reference" ] ||
    "$mnist" "${training[@]}" --workers 2 --run-dir "$folder/$reference" --export "$folder/$reference.safetensors"
  if ! timeout 300 "$@" "$mnist" "${training[@]}" --run-dir "$folder/$name" --export "$folder/$name.safetensors" \
    --backend "${name#*-}" </dev/null >"$folder/output" 2>&1; then
    say "FAILED: $* mnist --backend ${name#*-}"
    cat "$folder/output"
    failures=$((failures + 1))
  elif ! cmp -s <(losses "$reference") <(losses "$name") ||
    ! cmp -s "$folder/$reference.safetensors" "$folder/$name.safetensors"; then
    say "FAILED: mnist by $name has other bits than by --workers 2"
    failures=$((failures + 1))
  else
    say "passed: mnist by $name has the bits of --workers 2"
  fi
}
# What gpt writes under a launcher: checkpoints in a run that takes a while.
gpt=$(dirname "$program")/../bin/gpt
writing=(--data "$root/LICENSE" --layers 2 --width 32 --heads 2 --context 16 --sample 0 --steps 60 --epochs 60
  --global-batch 16 --logical-shards 4 --threads 1)
slowly=(--inject 'delay:phase=data,rank=0,seconds=0.2')
# same_as_uninterrupted NAME: its losses and its export are those of a run that nothing has happened to.
same_as_uninterrupted() {
  [ -d "$folder/uninterrupted" ] || "$gpt" "${writing[@]}" --quiet --run-dir "$folder/uninterrupted" \
    --export "$folder/uninterrupted.safetensors"
  cmp -s <(losses uninterrupted) <(losses "$1") && cmp -s "$folder/uninterrupted.safetensors" "$folder/$1.safetensors"
}
# preempted NAME LAUNCHER...: when the launcher gets SIGTERM (or by what else "preempt" says), the ranks save and end;
# another launch with --resume auto goes on from there.
preempt=(kill -TERM)
preempted() {
  local name=$1 launcher code=0
  shift
  local run=("$@" "$gpt" "${writing[@]}" --strategy fsdp --checkpoint-every 1000 --run-dir "$folder/$name"
    --export "$folder/$name.safetensors")
  "${run[@]}" "${slowly[@]}" </dev/null >"$folder/output" 2>&1 &
  launcher=$!
  for _ in $(seq 600); do
    [ "$(cat "$folder/$name/metrics.jsonl" 2>/dev/null | wc -l)" -lt 5 ] || break
    sleep 0.1
  done
  if [ "${preempt[0]}" = kill ]; then kill -TERM "$launcher"; else "${preempt[@]}"; fi
  wait "$launcher" || code=$?
  if [ "$code" -eq 0 ] || [ -e "$folder/$name/result.json" ] ||
    ! grep -q '"ending":"ended by a signal"' "$folder/$name/attempts/1/attempt.json" ||
    [ "$(ls "$folder/$name/checkpoints" | wc -l)" -ne 1 ]; then
    say "FAILED: expected one checkpoint and a failure after SIGTERM to $1, got exit code $code and:" \
      "$(ls -A "$folder/$name/checkpoints")"
    cat "$folder/output"
    failures=$((failures + 1))
  elif pgrep -f "$folder/$name " >/dev/null; then
    say "FAILED: processes are left after SIGTERM to $1"
    failures=$((failures + 1))
  elif ! timeout 300 "${run[@]}" --resume auto </dev/null >"$folder/output" 2>&1 || ! same_as_uninterrupted "$name"; then
    say "FAILED: expected the run to go on to the same bits under $1 with --resume auto"
    cat "$folder/output"
    failures=$((failures + 1))
  else
    say "passed: SIGTERM to $1 saves and ends, --resume auto goes on to the same bits"
  fi
}
# restarted NAME LAUNCHER...: a rank is killed, and what the launcher does about it goes on by itself.
restarted() {
  local name=$1
  shift
  if timeout 300 "$@" "$gpt" "${writing[@]}" --strategy fsdp --checkpoint-every 3 --resume auto --run-dir "$folder/$name" \
    --export "$folder/$name.safetensors" --inject 'kill:phase=backward,step=20,rank=1' </dev/null >"$folder/output" 2>&1 &&
    same_as_uninterrupted "$name" && grep -q '"restarts": *1,' "$folder/$name/result.json"; then
    say "passed: a killed rank under $1, which starts all again with --resume auto: the same bits"
  else
    say "FAILED: a killed rank under $*"
    cat "$folder/output"
    failures=$((failures + 1))
  fi
}
images=no
[ ! -d /usr/share/datasets/fashion-mnist ] || images=yes

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$folder"
both='rank 0 of 2: sum 3, backend shm
rank 1 of 2: sum 3, backend shm'
alone='rank 0 of 1: sum 1, backend thread'

expect 0 "$both" mpirun --oversubscribe -n 2 "$program"
expect 0 "$both" mpirun --oversubscribe -n 2 "$program" --workers 2
expect 2 'expected the 2 ranks that mpirun has started, got 3' \
  mpirun --oversubscribe -n 2 "$program" --workers 3
expect 0 "$alone" mpirun -n 1 "$program"
expect 2 'expected one launcher' env RANK=0 WORLD_SIZE=1 MASTER_PORT=29500 \
  mpirun --oversubscribe -n 2 "$program"
expect 17 'rank 1' mpirun --oversubscribe -n 2 "$program" --act exit

if [ "$images" = yes ]; then
  for backend in shm tcp gloo mpi; do
    if [ "$backend" = mpi ] && ! ldd "$mnist" | grep -q libmpi; then
      say "skipped: this build has no mpi"
      continue
    fi
    same_bits "mpirun-$backend" mpirun --oversubscribe -n 2
  done
fi

expect 2 "--grace: expected ranks that this program starts itself, got mpirun's" \
  mpirun --oversubscribe -n 2 "$gpt" "${writing[@]}" --strategy fsdp --checkpoint-every 3 --grace 3
# mpirun lets as many seconds pass before SIGTERM as between it and SIGKILL, by itself one: the run must not end before.
preempted mpirun-preempted mpirun --oversubscribe --mca odls_base_sigkill_timeout 3 -n 2

torchrun=${TORCHRUN:-$(command -v torchrun || echo "$root/build/peers/bin/torchrun")}
if [ -x "$torchrun" ]; then
  local_ranks=("$torchrun" --standalone --no-python --nproc-per-node)
  expect 0 "$both" "${local_ranks[@]}" 2 "$program"
  preempted torchrun-preempted "${local_ranks[@]}" 2
  restarted torchrun-restarted "${local_ranks[@]}" 2 --max-restarts 1
else
  say "skipped: no torchrun"
fi
preempted weft-preempted "$(dirname "$program")/../bin/weft" run -n 3 --

set_up_slurm
slots=$(nproc)
expect 0 "$alone" srun -n 1 "$program"
if [ "$slots" -ge 2 ]; then
  expect 0 "$both" srun -n 2 "$program"
  expect 0 "$both" srun --mpi=pmi2 -n 2 "$program" --workers 2
  expect 2 'expected the 2 ranks that srun has started, got 3' srun -n 2 "$program" --workers 3
fi
expect 0 "$both" srun --overcommit -n 2 "$program" --threads 1
if [ "$images" = yes ]; then
  for backend in shm tcp gloo; do
    same_bits "srun-$backend" srun --overcommit -n 2
  done
fi
# SIGTERM to srun is SIGKILL to its tasks; Slurm's own way to preempt them sends them SIGTERM.
preempt=(scancel --signal=TERM --name=preempted)
preempted srun-preempted srun --job-name=preempted --overcommit -n 2
# Neither a batch script nor a task of one is a rank: the program may start its own.
printf '#!/bin/sh\nexec %s --workers 2 --run-dir %s/batch\n' "$program" "$folder" >batch.sh
expect 0 'rank 0 of 2: sum 3, backend shm' sh -c \
  "sbatch --wait -n 1 -o $folder/batch.out batch.sh && cat $folder/batch.out"
expect 0 'rank 0 of 2: sum 3, backend shm' srun -n 1 "$program" --workers 2 --run-dir "$folder/step"
expect 0 'rank 0 of 2: sum 3, backend shm' srun -n 1 "$(dirname "$program")/../bin/weft" run -n 2 -- "$program"

[ "$failures" -eq 0 ] || fail "$failures failed"
say "all passed"
