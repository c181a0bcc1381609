# A whole experiment, from raw text to report.html; sourced by demo.sh and multi30k.sh, not run.
#
# They set what the header of demo.sh lists and call `experiment CORPUS OUT`. As many jobs run side by
# side as there are cores, with one thread each: two small trainings use two cores better than one does.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$RECIPES/jobs.sh"

# experiment CORPUS OUT: make the data, fill all cells, analyse, report. CORPUS: demo or multi30k.
experiment() {
  CORPUS=$1
  OUT=$(mkdir -p "$2" && cd "$2" && pwd) || fail "cannot create the folder $2"
  exec 8>"$OUT/.lock"
  flock --nonblock 8 || fail "another experiment is still running in $OUT"
  SEED=${SEED:-1}
  # nproc would answer with OMP_NUM_THREADS where it is set.
  JOBS=${JOBS:-$(env -u OMP_NUM_THREADS nproc)}
  LOGS=$OUT/logs
  ANALYSES=${ANALYSES:-token-scores length-bleu curves speed similarity swap lengths}
  [[ " $MODELS " == *" ape "* && " $MODELS " == *" shape "* ]] ||
    fail "MODELS must hold ape and shape, which the analyses compare"
  positive_integer SEED JOBS BATCH_TOKENS AVERAGE BEAM SWAPPED_SEQUENCES SPEED_TURNS \
    {VANILLA,EXTRAPOLATE,INTERPOLATE}_{UPDATES,SHIFT}
  learning_rate_or_empty {VANILLA,EXTRAPOLATE,INTERPOLATE}_FALLING_LR
  SAVE=$OUT remember CORPUS="$CORPUS" SEED="$SEED" SIZE="$SIZE" BATCH_TOKENS="$BATCH_TOKENS" \
    AVERAGE="$AVERAGE" BEAM="$BEAM" SWAPPED_SEQUENCES="$SWAPPED_SEQUENCES" \
    UPDATES="$(of_all_settings UPDATES)" MAX_SHIFT="$(of_all_settings SHIFT)" \
    FALLING_LR="$(of_all_settings FALLING_LR)"
  mkdir -p "$LOGS"
  # PYTHONWARNINGS: deprecations inside fairseq, many of them.
  export DATA=$OUT/data RESULTS=$OUT/results SEED BATCH_TOKENS AVERAGE BEAM ARCH_SIZE=tiny \
    GPUS=${GPUS:-0} OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
  # glibc shall keep freed memory: to fetch it anew for each step costs a CPU a tenth of its time.
  export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=$((16 << 30))
  plan_jobs
  run_jobs
  report
}

# of SETTING NAME: a parameter that each setting has its own value of, such as EXTRAPOLATE_SHIFT.
of() {
  local name=${1^^}_$2
  printf '%s' "${!name:-}"
}

# learning_rate_or_empty NAME ...: the variables of these names hold one, or nothing.
learning_rate_or_empty() {
  local name
  for name in "$@"; do
    [[ ${!name:-} =~ ^(0?\.[0-9]+)?$ ]] ||
      fail "$name must be a learning rate such as 0.002, not '${!name}'"
  done
}

# Also of settings that are not asked for: they may be added later.
of_all_settings() {
  local setting
  for setting in vanilla extrapolate interpolate; do
    printf '%s:%s ' "$setting" "$(of "$setting" "$1")"
  done
}

plan_jobs() {
  local seconds setting model
  plan 20 "" "Make the corpus and its settings" prepare
  plan_wait
  while read -r seconds setting model; do
    plan "$seconds" "$(result_of "$setting" "$model")" \
      "Train and translate: ${model^^} on ${setting^^}" fill_cell "$setting" "$model"
  done < <(cells_longest_first)
  plan_wait
  for setting in $SETTINGS; do
    plan_analysis 15 token-scores "$setting" "Score the gold tokens, ${setting^^}"
    plan_analysis 8 length-bleu "$setting" "Score by length, ${setting^^}"
    plan_analysis 8 curves "$setting" "Draw the learning curves, ${setting^^}"
    plan_analysis 20 speed "$setting" "Measure speed and memory, ${setting^^}"
    if [[ $setting == interpolate ]]; then
      plan_analysis 10 similarity "$setting" "Compare shifted encoder states, INTERPOLATE"
      plan_analysis 40 swap "$setting" "Translate swapped sentences, INTERPOLATE"
    fi
  done
  plan_analysis 8 lengths "" "Count the lengths of all settings"
}

# plan_analysis SECONDS NAME SETTING TITLE: if it is one of ANALYSES.
plan_analysis() {
  [[ " $ANALYSES " != *" $2 "* ]] || plan "$1" "$OUT/analysis/$3/$2.json" "$4" analyse "$2" "$3"
}

# So that no core waits at the end for a long training on another.
cells_longest_first() {
  local setting model
  for setting in $SETTINGS; do
    for model in $MODELS; do
      echo "$(cell_seconds "$setting" "$model") $setting $model"
    done
  done | sort --stable --key=1,1nr
}

# Half a minute of starting and translating, and the training; RPE computes more than the others.
cell_seconds() {
  local tokens=$(($(of "$1" UPDATES) * BATCH_TOKENS))
  echo $((30 + tokens / ($([[ $2 == rpe ]] && echo 7500 || echo 9000))))
}

save_of() { printf '%s' "$OUT/checkpoints/$1-$2-seed$SEED"; }

result_of() {
  local shape_k=
  [[ $2 != shape ]] || shape_k=-k$(of "$1" SHIFT)
  printf '%s' "$RESULTS/$1-$2$shape_k-seed$SEED.json"
}

# In data_prep MAX_TOKENS is the longest training pair, in the recipes a batch.
prepare() { env -u MAX_TOKENS bash "$TOP/data_prep/prepare_$CORPUS.sh" "$DATA"; }

# fill_cell SETTING MODEL: one cell of the paper's table 2.
fill_cell() {
  local updates
  updates=$(of "$1" UPDATES)
  # Small data has many short epochs: validate and save ten times, not after each of them.
  local rarely="--validate-interval $updates --save-interval $updates --num-workers 0"
  SAVE=$(save_of "$1" "$2") UPDATES=$updates SAVE_EVERY=$(((updates + 9) / 10)) \
    MAX_SHIFT=$(of "$1" SHIFT) MAX_TOKENS=$BATCH_TOKENS \
    EXTRA="$SIZE $rarely $(schedule "$1") ${EXTRA:-}" \
    bash "$RECIPES/$1.sh" "$2"
  MAX_TOKENS=4000 bash "$RECIPES/evaluate.sh" "$(save_of "$1" "$2")"
}

# schedule SETTING: of the learning rate, where the recipe's own is not wanted. One that falls to zero
# at the last update makes the most of a short training.
schedule() {
  local peak
  peak=$(of "$1" FALLING_LR)
  [[ -z $peak ]] ||
    echo "--lr-scheduler cosine --lr $peak --warmup-updates $(($(of "$1" UPDATES) / 15))"
}

# analyse NAME [SETTING]: one figure or table of the paper.
analyse() {
  local name=$1 setting=${2:-} k options=()
  case $name in
    curves) mapfile -t options < <(for_models "$setting" save_of) ;;
    length-bleu) mapfile -t options < <(for_models "$setting" result_of) ;;
    speed | swap) mapfile -t options < <(for_models "$setting" checkpoint) ;;
    similarity | token-scores)
      mapfile -t options < <(MODELS="ape shape" for_models "$setting" checkpoint)
      ;;
  esac
  case $name in
    swap) options+=(--sequences "$SWAPPED_SEQUENCES" --beam "$BEAM") ;;
    similarity)
      # The paper's offsets, 0, 100, 250 and 500, are for its K of 500.
      k=$(of "$setting" SHIFT)
      options+=(--setting "$setting" --offsets 0 $((k / 5)) $((k / 2)) "$k")
      ;;
    speed) options+=(--setting "$setting" --turns "$SPEED_TURNS") ;;
    token-scores) options+=(--setting "$setting") ;;
  esac
  [[ $name == curves ]] || options+=(--data "$DATA")
  shape_fairseq "$name" "${options[@]}" --out "$OUT/analysis/$setting"
}

# for_models SETTING FUNCTION: a line for each model.
for_models() {
  local model
  for model in $MODELS; do
    "$2" "$1" "$model"
    echo
  done
}

# ape=AVERAGE.pt, as the analyses take models.
checkpoint() { printf '%s' "$2=$(echo "$(save_of "$1" "$2")"/average-*.pt)"; }

# The report is made anew each time: it shows all that is there.
report() {
  rm -f "$OUT/report.html"
  shape_fairseq report "$OUT" >"$LOGS/report.txt" 2>"$LOGS/report.log" ||
    fail "no report: $(reason "$LOGS/report.log") (log: $LOGS/report.log)"
  echo
  cat "$LOGS/report.txt"
}
