#!/usr/bin/env bash
# Tune SHAPE's maximum shift K on validation BLEU, as in appendix B.
#
#   DATA=FOLDER bash recipes/tune_max_shift.sh
#   Example: DATA=data SHIFTS="20 40 100" bash recipes/tune_max_shift.sh
#
# Trains and evaluates one model for each K, then reports the best. Run the same command again to go
# on after an interruption. Environment variables (with their defaults), besides those of the
# training recipes and of recipes/evaluate.sh:
#   SHIFTS="10 20 30 40 100 500"
#   SETTING=extrapolate               vanilla, extrapolate or interpolate
#   SAVE=checkpoints/tune-SETTING     gets a folder max-shift-K for each K, and results

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 0 "$@"
SHIFTS=${SHIFTS:-10 20 30 40 100 500}
SETTING=${SETTING:-extrapolate}
case $SETTING in
  vanilla | extrapolate | interpolate) ;;
  *) fail "SETTING must be vanilla, extrapolate or interpolate, not '$SETTING'" ;;
esac

for shift in $SHIFTS; do
  [[ $shift =~ ^(0|[1-9][0-9]*)$ ]] || fail "SHIFTS must be whole numbers, not '$shift'"
done
SAVE=${SAVE:-checkpoints/tune-$SETTING}
RESULTS=$SAVE/results
results=()
for shift in $SHIFTS; do
  save=$SAVE/max-shift-$shift
  SAVE=$save MAX_SHIFT=$shift bash "$RECIPES/$SETTING.sh" shape
  # A dry run has no folder that could be evaluated.
  [[ ${DRY_RUN:-0} == 0 ]] || continue
  results+=("$RESULTS/$("$PYTHON" -m shape_fairseq.evaluation.training_folder "$save")")
  if [[ ! -e ${results[-1]} ]]; then
    SUBSETS=$("$PYTHON" -m shape_fairseq.data_folder "$DATA" valid) RESULTS=$RESULTS \
      bash "$RECIPES/evaluate.sh" "$save"
  fi
done
if [[ ${DRY_RUN:-0} != 0 ]]; then exit; fi
"$PYTHON" -m shape_fairseq max-shift "${results[@]}"
