# Jobs side by side, with a counter and the time that remains; sourced, not run.
#
#   plan 30 "" "Make the corpus" make_corpus                 # a job that is never skipped
#   plan_wait                                                # what follows needs what came before
#   plan 100 out/a.json "Train APE" train ape                # skipped if out/a.json is there
#   JOBS=2 LOGS=out/logs run_jobs
#
# A second start goes on where the first one stopped. The log of `train ape` is LOGS/train-ape.log.
WEIGHTS=() PRODUCTS=() TITLES=() COMMANDS=()
declare -A FINISHED=() JOB_OF=() STARTED=()

# plan SECONDS PRODUCT TITLE COMMAND...: a job, the file that it makes, and how long it takes on one core;
# only the ratios of these times matter.
plan() {
  WEIGHTS+=("$1")
  PRODUCTS+=("$2")
  TITLES+=("$3")
  COMMANDS+=("${*:4}")
}

plan_wait() { plan 0 "" "" wait; }

# Run all jobs in their order, JOBS at a time; the first failure ends all of them.
run_jobs() {
  local job
  # Jobs get process groups of their own, so that a stop reaches all of their processes.
  set -m
  trap 'stop_jobs; clear_line; fail "stopped: run the same command again to go on"' INT TERM
  for job in "${!COMMANDS[@]}"; do
    [[ ! -e ${PRODUCTS[job]:-/dev/null/none} ]] || FINISHED[$job]=1
  done
  # The first estimate counts as a minute's work, so that one quick job does not change all.
  ESTIMATED=60 SPENT=60
  for job in "${!COMMANDS[@]}"; do
    if [[ ${COMMANDS[job]} == wait ]]; then
      await_fewer_than 1
    elif [[ -z ${FINISHED[$job]:-} ]]; then
      await_fewer_than "$JOBS"
      start "$job"
    fi
  done
  await_fewer_than 1
  trap - INT TERM
  set +m
}

start() {
  announce "$1"
  (${COMMANDS[$1]}) >"$(log_of "$1")" 2>&1 8>&- &
  JOB_OF[$!]=$1
  STARTED[$!]=$SECONDS
}

log_of() { printf '%s' "$LOGS/${COMMANDS[$1]// /-}.log"; }

announce() {
  local job number=0 total=0
  for job in "${!COMMANDS[@]}"; do
    [[ ${COMMANDS[job]} != wait ]] || continue
    total=$((total + 1))
    ((job > $1)) || number=$total
  done
  clear_line
  printf '[%d/%d] %s (%s)\n' "$number" "$total" "${TITLES[$1]}" "$(time_left)"
}

# An estimate: what the unfinished jobs were planned with, as much longer as the finished ones took.
time_left() {
  local job pid seconds=0
  for job in "${!COMMANDS[@]}"; do
    [[ -n ${FINISHED[$job]:-} ]] || seconds=$((seconds + WEIGHTS[job]))
  done
  seconds=$((seconds * SPENT / ESTIMATED))
  for pid in "${!JOB_OF[@]}"; do seconds=$((seconds - (SECONDS - STARTED[$pid]))); done
  seconds=$((seconds > JOBS ? seconds / JOBS : 1))
  if ((seconds < 90)); then
    printf 'about %d s left' "$seconds"
  else
    printf 'about %d min left' $(((seconds + 30) / 60))
  fi
}

# await_fewer_than COUNT: wait until fewer jobs run, and notice those that end.
await_fewer_than() {
  local pid
  while ((${#JOB_OF[@]} >= $1)); do
    for pid in "${!JOB_OF[@]}"; do
      kill -0 "$pid" 2>/dev/null || collect "$pid"
    done
    clear_line
    ((${#JOB_OF[@]} >= $1)) || break
    [[ ! -t 1 ]] || printf '%d running, %s' "${#JOB_OF[@]}" "$(time_left)"
    sleep 0.5
  done
}

# The line of a terminal that tells what is running.
clear_line() { [[ ! -t 1 ]] || printf '\r\033[K'; }

collect() {
  local job=${JOB_OF[$1]} status=0
  wait "$1" || status=$?
  unset "JOB_OF[$1]"
  if ((status)); then
    stop_jobs
    clear_line
    fail "'${TITLES[job]}' failed: $(reason "$(log_of "$job")") (log: $(log_of "$job"))"
  fi
  FINISHED[$job]=1
  ESTIMATED=$((ESTIMATED + WEIGHTS[job]))
  SPENT=$((SPENT + SECONDS - STARTED[$1]))
}

# reason LOG: our own commands end with a line "error: ...", those of others with an exception.
reason() { (grep -a '^error: ' "$1" || cat "$1") | tail -n 1; }

# A stop may come between the start of a job and the note of it in JOB_OF, so ask bash.
stop_jobs() {
  local pid
  for pid in $(jobs -p); do kill -TERM -- "-$pid" || true; done
  wait
} 2>/dev/null
