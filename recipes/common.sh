# What all recipes share; sourced, not run.
# shellcheck shell=bash
#
# The work is done by shape_fairseq/experiment: nothing that a file or the environment says is
# evaluated by the shell.
set -euo pipefail
unset CDPATH # with it, cd prints where it went

RECIPES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="${RECIPES%/*}${PYTHONPATH:+:$PYTHONPATH}"
# fairseq opens some of its files with the terminal's encoding.
export PYTHONUTF8=1
PYTHON=${PYTHON:-python}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# arguments COUNT "$@": the header of a script is its help.
arguments() {
  if [[ $# -ne $(($1 + 1)) || ${2:-} == -* ]]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    if [[ ${2:-} == -h || ${2:-} == --help ]]; then exit 0; else exit 2; fi
  fi
}

# train SETTING MODEL fairseq-train ...: the command with what MODEL and the variables change in it.
train() { exec "$PYTHON" -m shape_fairseq.experiment.training "$@"; }

# experiment FILE [OUT] [OPTION...]: a whole experiment, kept in OUT.
experiment() {
  local file=$1
  shift
  [[ ${1:--} == -* ]] || set -- --out "$@"
  exec "$PYTHON" -m shape_fairseq experiment "$file" "$@"
}
