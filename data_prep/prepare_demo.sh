#!/usr/bin/env bash
# Make the demo corpus and its three settings: needs no download and takes about a minute.
#
#   bash data_prep/prepare_demo.sh OUT
#   Example: TRAIN_PAIRS=2000 bash data_prep/prepare_demo.sh data
#
# Environment variables (with their defaults):
#   TRAIN_PAIRS=20000  VALID_PAIRS=500  TEST_PAIRS=500
#   CORPUS_SEED=1           another corpus; the seeds of trainings are another matter
#   NESTING=1               0 to 1: how readily clauses are added; less makes short sentences
#   BPE_MERGES=1000         joint BPE merges
#   EXTRAPOLATE_LIMIT=30    longest training pair of EXTRAPOLATE in subwords
#   GROUP_SIZE=10           sentences in a sequence of INTERPOLATE
#   SWAPPED_SAMPLE=500      training sequences in the swapped set
#   SOURCE_LANG=en  TARGET_LANG=de    or the other way round
#   MAX_POSITIONS=          as in docs/data.md

SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-500}
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
BPE_MERGES=${BPE_MERGES:-1000}
EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-30}
TRAIN_PAIRS=${TRAIN_PAIRS:-20000}
VALID_PAIRS=${VALID_PAIRS:-500}
TEST_PAIRS=${TEST_PAIRS:-500}
CORPUS_SEED=${CORPUS_SEED:-1}
NESTING=${NESTING:-1}
TRAIN=(train)
EVALUATION=(valid test)
JOINED=

generate() {
  run data_prep.demo_corpus --output "$1" --seed "$CORPUS_SEED" --nesting "$NESTING" \
    --train "$TRAIN_PAIRS" --valid "$VALID_PAIRS" --test "$TEST_PAIRS"
}

NUMBERS=(TRAIN_PAIRS VALID_PAIRS TEST_PAIRS)
[[ $CORPUS_SEED =~ ^[0-9]{1,12}$ ]] || fail "CORPUS_SEED=$CORPUS_SEED is not a whole number"
[[ $NESTING =~ ^(0|1|0?\.[0-9]+|1\.0+|0\.)$ ]] || fail "NESTING=$NESTING is not a number from 0 to 1"
[[ " $SRC $TGT " == " en de " || " $SRC $TGT " == " de en " ]] ||
  fail "the demo corpus has English and German: SOURCE_LANG and TARGET_LANG are en and de"
usage_or_out "$@"
remember DATA=demo SEED="$CORPUS_SEED" NESTING="$NESTING" TRAIN_PAIRS="$TRAIN_PAIRS" VALID_PAIRS="$VALID_PAIRS" \
  TEST_PAIRS="$TEST_PAIRS" MAX_TOKENS="$MAX_TOKENS" BPE_MERGES="$BPE_MERGES" \
  EXTRAPOLATE_LIMIT="$EXTRAPOLATE_LIMIT" GROUP_SIZE="$GROUP_SIZE" SWAPPED_SAMPLE="$SWAPPED_SAMPLE"
stage raw generate
build
