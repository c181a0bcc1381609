# A whole experiment, from raw text to report.html; sourced by demo.sh and multi30k.sh, not run.
#
# They set what the header of demo.sh lists and call `experiment CORPUS OUT`. Every step is a job with
# a product in OUT: a job whose product is there is skipped, so a second start goes on where the first
# one stopped. As many jobs run side by side as there are cores, with one thread each: two small
# trainings use two cores better than one does.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Deprecations inside fairseq, many of them.
export PYTHONWARNINGS=ignore
SEED=${SEED:-1}
WEIGHTS=() PRODUCTS=() TITLES=() COMMANDS=()
declare -A STARTED=() JOB_OF=()

# experiment CORPUS OUT: make the data, fill all cells, analyse, report. CORPUS: demo or multi30k.
experiment() {
  CORPUS=$1
  OUT=$(mkdir -p "$2" && cd "$2" && pwd) || fail "cannot create the folder $2"
  exec 8>"$OUT/.lock"
  flock --nonblock 8 || fail "another experiment is still running in $OUT"
  JOBS=${JOBS:-$(nproc)}
  # What is compared in all analyses.
  [[ " $MODELS " == *" ape "* && " $MODELS " == *" shape "* ]] || fail "MODELS must hold ape and shape"
  positive_integer JOBS BATCH_TOKENS AVERAGE BEAM SWAPPED_SEQUENCES
  export DATA=$OUT/data RESULTS=$OUT/results ARCH_SIZE=tiny GPUS=${GPUS:-0} OMP_NUM_THREADS=1
  SAVE=$OUT remember CORPUS="$CORPUS" SEED="$SEED" SIZE="$SIZE" BATCH_TOKENS="$BATCH_TOKENS" \
    AVERAGE="$AVERAGE" BEAM="$BEAM" SWAPPED_SEQUENCES="$SWAPPED_SEQUENCES" \
    UPDATES="$(of_all_settings UPDATES)" MAX_SHIFT="$(of_all_settings SHIFT)"
  mkdir -p "$OUT/logs"
  plan_jobs
  run_jobs
  finish
}

# of SETTING NAME: a parameter that each setting has its own value of, such as EXTRAPOLATE_SHIFT.
of() {
  local name=${1^^}_$2
  positive_integer "$name"
  printf '%s' "${!name}"
}

# Also of those that are not asked for: they may be added later.
of_all_settings() {
  local setting
  for setting in vanilla extrapolate interpolate; do printf '%s:%s ' "$setting" "$(of "$setting" "$1")"; done
}

# plan SECONDS PRODUCT TITLE COMMAND...: a job, the file in OUT that it makes, and how long it takes on
# one core; only the ratios of these times matter. A job without a product is never skipped.
plan() {
  WEIGHTS+=("$1")
  PRODUCTS+=("$2")
  TITLES+=("$3")
  COMMANDS+=("${*:4}")
}

# What follows needs all that was planned before.
plan_wait() { plan 0 "" "" wait; }

plan_jobs() {
  local setting model
  plan 30 "" "Make the corpus and its settings" prepare
  plan_wait
  for setting in $SETTINGS; do
    for model in $MODELS; do
      # A tenth of the time goes into translating; RPE computes more than the others.
      plan $(($(of "$setting" UPDATES) * ($([[ $model == rpe ]] && echo 5 || echo 4)) / 16 + 30)) \
        "$(result_of "$setting" "$model")" "Train and translate: ${model^^} on ${setting^^}" \
        fill_cell "$setting" "$model"
    done
  done
  plan_wait
  for setting in $SETTINGS; do
    plan_analysis 15 "$setting" token-scores "Score the gold tokens"
    plan_analysis 5 "$setting" length-bleu "Score by length"
    plan_analysis 5 "$setting" curves "Draw the learning curves"
    plan_analysis 30 "$setting" speed "Measure speed and memory"
    if [[ $setting == interpolate ]]; then
      plan_analysis 10 "$setting" similarity "Compare shifted encoder states"
      plan_analysis 60 "$setting" swap "Translate swapped sentences"
    fi
  done
  plan_analysis 5 . lengths "Count the lengths of all settings"
}

# plan_analysis SECONDS SETTING NAME TITLE: of one setting, or of all of them (.).
plan_analysis() {
  local where=", ${2^^}"
  plan "$1" "analysis/$2/$3.json" "$4${where#, .}" analyse "$3" "$2"
}

save_of() { printf '%s' "$OUT/checkpoints/$1-$2-seed$SEED"; }

result_of() {
  local shift=
  [[ $2 != shape ]] || shift=-k$(of "$1" SHIFT)
  printf '%s' "results/$1-$2$shift-seed$SEED.json"
}

prepare() {
  # In data_prep MAX_TOKENS is the longest training pair, in the recipes a batch.
  env -u MAX_TOKENS bash "$TOP/data_prep/prepare_$CORPUS.sh" "$DATA"
}

# fill_cell SETTING MODEL: one cell of the paper's table 2.
fill_cell() {
  local updates
  updates=$(of "$1" UPDATES)
  # Small data has many short epochs: validate and save ten times, not after each of them.
  local rare="--validate-interval $updates --save-interval $updates --num-workers 0"
  export SEED MAX_TOKENS=$BATCH_TOKENS BATCH_TOKENS
  SAVE=$(save_of "$1" "$2") UPDATES=$updates SAVE_EVERY=$(((updates + 9) / 10)) \
    MAX_SHIFT=$(of "$1" SHIFT) EXTRA="$SIZE $rare ${EXTRA:-}" bash "$RECIPES/$1.sh" "$2"
  AVERAGE=$AVERAGE BEAM=$BEAM MAX_TOKENS=4000 bash "$RECIPES/evaluate.sh" "$(save_of "$1" "$2")"
}

# checkpoints SETTING MODEL...: ape=AVERAGE.pt and so on.
checkpoints() {
  local model
  for model in "${@:2}"; do
    printf '%s\n' "$model=$(echo "$(save_of "$1" "$model")"/average-*.pt)"
  done
}

# analyse NAME SETTING: one figure or table of the paper.
analyse() {
  local name=$1 setting=$2 model shift arguments=()
  case $name in
    curves) for model in $MODELS; do arguments+=("$(save_of "$setting" "$model")"); done ;;
    length-bleu)
      for model in $MODELS; do arguments+=("$OUT/$(result_of "$setting" "$model")"); done
      arguments+=(--data "$DATA")
      ;;
    lengths) arguments=(--data "$DATA") ;;
    swap)
      # shellcheck disable=SC2086 # a list of words
      mapfile -t arguments < <(checkpoints "$setting" $MODELS)
      arguments+=(--data "$DATA" --sequences "$SWAPPED_SEQUENCES" --beam "$BEAM")
      ;;
    similarity)
      # The paper's offsets, 0, 100, 250 and 500, for its K of 500.
      shift=$(of "$setting" SHIFT)
      mapfile -t arguments < <(checkpoints "$setting" ape shape)
      arguments+=(--data "$DATA" --setting "$setting" --subset valid --sequences 10)
      arguments+=(--offsets 0 $((shift / 5)) $((shift / 2)) "$shift")
      ;;
    token-scores)
      mapfile -t arguments < <(checkpoints "$setting" ape shape)
      arguments+=(--data "$DATA" --setting "$setting" --subset valid)
      ;;
    speed)
      # shellcheck disable=SC2086 # a list of words
      mapfile -t arguments < <(checkpoints "$setting" $MODELS)
      arguments+=(--data "$DATA" --setting "$setting")
      ;;
  esac
  shape_fairseq "$name" "${arguments[@]}" --out "$OUT/analysis/$setting"
}

is_done() { [[ -n ${PRODUCTS[$1]} && -e $OUT/${PRODUCTS[$1]} ]]; }

# Run all jobs in their order, JOBS at a time.
run_jobs() {
  local job
  # Jobs get process groups of their own, so that a stop reaches all of their processes.
  set -m
  trap 'stop_jobs; echo; fail "stopped: run the same command again to go on"' INT TERM
  ESTIMATED=0 SPENT=0
  for job in "${!COMMANDS[@]}"; do
    if [[ ${COMMANDS[job]} == wait ]]; then
      await_fewer_than 1
    elif ! is_done "$job"; then
      await_fewer_than "$JOBS"
      start "$job"
    fi
  done
  await_fewer_than 1
  trap - INT TERM
  set +m
}

# fill_cell-extrapolate-ape.log, analyse-swap-interpolate.log
log_of() {
  local name=${COMMANDS[$1]%" ."}
  printf '%s' "$OUT/logs/${name// /-}.log"
}

start() {
  announce "$1"
  # A shell of its own: `set -e` does not work inside a function whose failure is asked for.
  (${COMMANDS[$1]}) >"$(log_of "$1")" 2>&1 8>&- &
  JOB_OF[$!]=$1
  STARTED[$!]=$SECONDS
}

# Jobs are counted without the points where everything waits.
announce() {
  local job number=0 total=0
  for job in "${!COMMANDS[@]}"; do
    [[ ${COMMANDS[job]} != wait ]] || continue
    total=$((total + 1))
    ((job > $1)) || number=$total
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
  printf '[%d/%d] %s (%s)\n' "$number" "$total" "${TITLES[$1]}" "$(time_left)"
}

# An estimate: the times that the jobs still need, in proportion to those of the finished ones.
time_left() {
  local job pid seconds=0
  for job in "${!COMMANDS[@]}"; do
    is_done "$job" || seconds=$((seconds + WEIGHTS[job]))
  done
  ((ESTIMATED == 0)) || seconds=$((seconds * SPENT / ESTIMATED))
  for pid in "${!JOB_OF[@]}"; do seconds=$((seconds - (SECONDS - STARTED[$pid]))); done
  seconds=$((seconds > JOBS ? seconds / JOBS : 1))
  if ((seconds < 90)); then echo "about $seconds s left"; else echo "about $(((seconds + 30) / 60)) min left"; fi
}

# await_fewer_than COUNT: wait until fewer jobs run, and notice those that end.
await_fewer_than() {
  local pid
  while ((${#JOB_OF[@]} >= $1)); do
    for pid in "${!JOB_OF[@]}"; do
      kill -0 "$pid" 2>/dev/null || collect "$pid"
    done
    ((${#JOB_OF[@]} >= $1)) || break
    [[ ! -t 1 ]] || printf '\r\033[K%d running, %s' "${#JOB_OF[@]}" "$(time_left)"
    sleep 0.5
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
}

collect() {
  local job=${JOB_OF[$1]} status=0
  wait "$1" || status=$?
  unset "JOB_OF[$1]"
  if ((status)); then
    stop_jobs
    [[ ! -t 1 ]] || printf '\r\033[K'
    fail "'${TITLES[job]}' failed: $(reason "$(log_of "$job")") (log: $(log_of "$job"))"
  fi
  ESTIMATED=$((ESTIMATED + WEIGHTS[job]))
  SPENT=$((SPENT + SECONDS - STARTED[$1]))
}

# reason LOG: our scripts and commands end with a line "error: ...", those of others with an exception.
reason() { (grep -a '^error: ' "$1" || cat "$1") | tail -n 1; }

stop_jobs() {
  local pid
  for pid in "${!JOB_OF[@]}"; do kill -TERM -- "-$pid" || true; done
  wait
} 2>/dev/null

# The report is made anew each time: it shows all that is there.
finish() {
  rm -f "$OUT/report.html"
  shape_fairseq report "$OUT" >"$OUT/logs/report.txt" 2>"$OUT/logs/report.log" ||
    fail "no report: $(reason "$OUT/logs/report.log") (log: $OUT/logs/report.log)"
  echo
  cat "$OUT/logs/report.txt"
}
