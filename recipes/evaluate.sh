#!/usr/bin/env bash
# Evaluate a training: average its last 10 checkpoints, translate, score with sacreBLEU.
#
#   DATA=FOLDER bash recipes/evaluate.sh SAVE      SAVE: the folder of a training
#
# Writes RESULTS/SETTING-MODEL[-kK]-seedSEED.json for `shape-fairseq tables RESULTS/*.json`. Run the
# same command again to go on after an interruption. Environment variables (with their defaults):
#   RESULTS=results      where the result file goes; none is ever overwritten
#   AVERAGE=10           checkpoints to average
#   BEAM=4  LENPEN=0.6   beam width of table 4; length penalty of fairseq's scaling_nmt page
#   SUBSETS              the test sets to translate (all of DATA's)
#   MAX_TOKENS=3500      tokens in a batch
#   GPUS                 0: the CPU (where no GPU is found)
#   GENERATE_EXTRA       more options for fairseq-generate; they win over the recipe's
#   DRY_RUN=1            print the commands, run nothing

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"
SAVE=${1%/}
RESULTS=${RESULTS:-results}
AVERAGE=${AVERAGE:-10}
BEAM=${BEAM:-4}
LENPEN=${LENPEN:-0.6}
MAX_TOKENS=${MAX_TOKENS:-3500}
positive_integer AVERAGE BEAM MAX_TOKENS
[[ $LENPEN =~ ^-?[0-9]+(\.[0-9]+)?$ ]] || fail "LENPEN must be a number, not '$LENPEN'"
[[ -e $SAVE/recipe.txt ]] || fail "$SAVE/recipe.txt is missing: $SAVE is no folder of a recipe"

# recipe NAME: what the training was started with.
recipe() { sed -n "s/^$1=//p" "$SAVE/recipe.txt"; }

SETTING=$(recipe SETTING)
choose_setting "$SETTING"
check_data "$DATA_SETTING"
[[ $(recipe DATA_HASH) == "$(data_hash)" ]] || fail "$SAVE was trained on other data than $DATA"
[[ -e $DATA/statistics/subsets.tsv ]] ||
  fail "$DATA/statistics/subsets.tsv is missing: run data_prep/prepare_*.sh on $DATA again"
# The rows that are made of no others: newstest2010 and so on, not valid and test.
SUBSETS=${SUBSETS:-$(awk -F '\t' 'NR > 1 && $1 == $2 { print $1 }' "$DATA/statistics/subsets.tsv")}
for subset in $SUBSETS; do
  [[ -e $DATA/$DATA_SETTING/$subset.en-de.en.idx ]] ||
    fail "$DATA/$DATA_SETTING has no subset $subset"
done

SHIFT=$(recipe MAX_SHIFT)
RESULT=$RESULTS/$SETTING-$(recipe MODEL)${SHIFT:+-k$SHIFT}-seed$(recipe SEED).json
[[ ! -e $RESULT ]] || fail "$RESULT exists already: delete it or choose another RESULTS"

# Checkpoints are checkpoint_EPOCH_UPDATES.pt.
mapfile -t updates < <(find "$SAVE" -maxdepth 1 -name 'checkpoint_*_*.pt' | sed 's/.*_//; s/\.pt$//' | sort -n)
((${#updates[@]} >= AVERAGE)) ||
  fail "$SAVE has ${#updates[@]} checkpoints and $AVERAGE are to be averaged: train longer or set AVERAGE"
# The name tells this average from one of an earlier, shorter training.
CHECKPOINT=$SAVE/average-$AVERAGE-at-${updates[-1]}.pt
if [[ ! -e $CHECKPOINT ]]; then
  run "$PYTHON" -m shape_fairseq average "$SAVE" --number "$AVERAGE" --output "$CHECKPOINT"
fi

count_ranks
DEVICE=()
if ((GPUS == 0)); then DEVICE=(--cpu); elif [[ ${FP16:-1} == 1 ]]; then DEVICE=(--fp16); fi
# Ten joined sentences need more than fairseq's 200 tokens.
SEARCH=(--beam "$BEAM" --lenpen "$LENPEN" --max-len-a 2 --max-len-b 50)
read -ra extra <<<"${GENERATE_EXTRA:-}"
OPTIONS=("${SEARCH[@]}" "${DEVICE[@]}" "${extra[@]}")
GENERATED=$SAVE/generated/$(basename "$CHECKPOINT" .pt)$(printf '%s' "${OPTIONS[@]}" | tr -c 'A-Za-z0-9.-' _)
[[ -n $DRY_RUN ]] || mkdir -p "$GENERATED"

# translate SUBSET: the output appears under its name only when it is complete.
translate() {
  local output=$GENERATED/$1.txt
  local command=(
    "$(command_path fairseq-generate)" "$DATA/$DATA_SETTING" --user-dir "$TOP/shape_fairseq"
    --task translation --source-lang en --target-lang de --path "$CHECKPOINT" --gen-subset "$1"
    --max-tokens "$MAX_TOKENS" --required-batch-size-multiple 1 "${OPTIONS[@]}"
  )
  if [[ -n $DRY_RUN ]]; then
    run "${command[@]}"
  elif [[ -e $output ]]; then
    log "$1: translated already"
  else
    log "$1: translating (log: $output.log)"
    "${command[@]}" >"$output.partial" 2>"$output.log" ||
      fail "fairseq-generate failed on $1: $(tail -n 1 "$output.log")"
    mv "$output.partial" "$output"
  fi
}

for subset in $SUBSETS; do translate "$subset"; done
run "$PYTHON" -m shape_fairseq score --data "$DATA" --save "$SAVE" --checkpoint "$CHECKPOINT" \
  --generated "$GENERATED" --setting average="$AVERAGE" --setting options="${OPTIONS[*]}" \
  --output "$RESULT"
[[ -n $DRY_RUN ]] || log "written: $RESULT"
