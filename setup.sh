#!/usr/bin/env bash
# Make an environment with everything in it; `make setup` calls this.
#
#   bash setup.sh VENV PYTHON
#
# Says what each step takes, and keeps pip's output in VENV/setup.log. Run again, it goes on.
set -euo pipefail
unset CDPATH # with it, cd prints where it went
cd "$(dirname "${BASH_SOURCE[0]}")"
VENV=${1:?usage: bash setup.sh VENV PYTHON}
PYTHON=${2:?usage: bash setup.sh VENV PYTHON}
LOG=$VENV/setup.log
PIP=("$VENV/bin/python" -m pip --disable-pip-version-check install -c constraints.txt)
GIGABYTES_CPU=3
GIGABYTES_CUDA=8

say() { printf 'setup: %s\n' "$*" >&2; }

missing=0
lack() {
  printf 'setup: missing: %s\n' "$*" >&2
  missing=1
}

# What will be needed, told before anything is done.
check_machine() {
  if ! command -v "$PYTHON" >/dev/null; then
    lack "no Python at '$PYTHON': make setup PYTHON=..."
    exit 1
  fi
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    { lack "Python 3.10 or newer; $PYTHON is $("$PYTHON" --version 2>&1)" && exit 1; }
  VERSION=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    lack "Python's venv module (Debian: apt-get install python$VERSION-venv)"
  # fairseq has ready-made packages for 3.12 on Linux only.
  if [[ $VERSION != 3.12 ]]; then
    command -v "${CXX:-c++}" >/dev/null ||
      lack "a C++ compiler, for fairseq (Debian: apt-get install g++; or take Python 3.12)"
    "$PYTHON" -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(os.path.join(
        s.get_paths()["include"], "Python.h")))' ||
      lack "Python's headers, for fairseq (Debian: apt-get install python$VERSION-dev)"
  fi
  local free
  free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
  [[ $free -ge $GIGABYTES_CPU ]] || lack "disk: $free GB are free here, $GIGABYTES_CPU GB are needed"
  [[ $missing -eq 0 ]] || exit 1
}

# step NAME WHAT COMMAND...: say what it takes, keep its output in the log, point to it on failure.
step() {
  local name=$1 what=$2 started=$SECONDS
  shift 2
  say "$name: $what"
  printf '\n== %s: %s\n' "$name" "$*" >>"$LOG"
  if ! "$@" >>"$LOG" 2>&1; then
    tail -n 5 "$LOG" >&2
    say "$name failed: all of pip's output is in $LOG"
    return 1
  fi
  say "$name: done in $((SECONDS - started)) s"
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# Which torch pip would take, asked without downloading it: does it bring the CUDA packages?
torch_brings_cuda() {
  "${PIP[@]}" -q --dry-run --ignore-installed --no-deps --report - torch 2>>"$LOG" |
    grep -q '"nvidia-'
}

tell_of_cuda() {
  TORCH_SIZE="about 200 MB"
  if "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    TORCH_SIZE="already here"
  elif torch_brings_cuda; then
    TORCH_SIZE="about 3 GB with the CUDA packages, several minutes"
    local free
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
    [[ $free -ge $GIGABYTES_CUDA ]] || { lack "disk: $free GB are free here, torch with CUDA needs $GIGABYTES_CUDA GB"; exit 1; }
    if ! has_gpu; then
      say "this machine has no GPU, but pip's torch brings 3 GB of CUDA packages. To spare them, stop now"
      say "and run: PIP_EXTRA_INDEX_URL=INDEX make setup, INDEX being the CPU address on PyTorch's Get Started page"
      [[ ! -t 2 ]] || { say "going on in 10 seconds (Ctrl-C stops)" && sleep 10; }
    fi
  fi
}

check_machine
mkdir -p "$VENV"
step environment "a folder for all packages, $VENV, some seconds" "$PYTHON" -m venv "$VENV"
step pip "the versions that build the others, some seconds" "${PIP[@]}" pip cython numpy setuptools wheel
tell_of_cuda
# Halves the time to compile extensions of fairseq that translation does not use.
export CFLAGS='-g0 -O1'
# fairseq-fixed imports torch while it is built; fairseq 0.12.2 must not find it then, as its sources
# lack the files that it would build. Without build isolation no package gets a second torch.
if [[ $VERSION == 3.10 ]]; then
  step fairseq "fairseq 0.12.2, compiled once, and torch: $TORCH_SIZE" \
    "${PIP[@]}" --no-build-isolation fairseq
else
  step torch "$TORCH_SIZE" "${PIP[@]}" torch
  if [[ $VERSION == 3.12 ]]; then what="ready-made"; else what="compiling, one to two minutes, once"; fi
  step fairseq "$what" "${PIP[@]}" --no-build-isolation fairseq-fixed
fi
step shape-fairseq "the project and its tools for tests, figures and export" \
  "${PIP[@]}" --no-build-isolation -e '.[analysis,ctranslate2,dev]'
step fastBPE "compiling, some seconds" "${PIP[@]}" --no-build-isolation fastBPE ||
  say "fastBPE is not needed: without it our own engine applies BPE, more slowly"
say "ready: source $VENV/bin/activate"
