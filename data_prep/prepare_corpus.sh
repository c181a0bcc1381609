#!/usr/bin/env bash
# Prepare anyone's parallel text, in any two languages.
#
#   bash data_prep/prepare_corpus.sh RAW-FOLDER OUT
#   Example: SOURCE_LANG=fr TARGET_LANG=cs bash data_prep/prepare_corpus.sh texts data
#
# RAW-FOLDER holds train, valid and test in both languages, a sentence a line, plain or packed with
# gzip: train.en train.de valid.en valid.de test.en test.de (or train.en.gz ...).
#
# Environment variables (with their defaults):
#   SOURCE_LANG=en  TARGET_LANG=de    the endings of the files, and the rules of the tokenizer
#   BPE_MERGES=8000         joint BPE merges
#   EXTRAPOLATE_LIMIT=50    longest training pair of EXTRAPOLATE in subwords
#   GROUP_SIZE=10           sentences in a sequence of INTERPOLATE
#   SWAPPED_SAMPLE=1000     training sequences in the swapped set
#   MAX_TOKENS=80           longest training pair in tokens
#   MAX_POSITIONS=          as in docs/data.md

SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-1000}
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
BPE_MERGES=${BPE_MERGES:-8000}
EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-50}
TRAIN=(train)
EVALUATION=(valid test)
JOINED=
if [[ $# -eq 2 ]]; then
  RAW=$1
  shift
fi

# The files that are there, plain or packed.
raw_names() {
  local name
  for name in {train,valid,test}.{"$SRC","$TGT"}; do
    if [[ ! -e $RAW/$name && -e $RAW/$name.gz ]]; then name+=.gz; fi
    echo "$name"
  done
}

collect() {
  local name
  for name in $NAMES; do
    cp "$RAW/$name" "$1/$name" || fail "$RAW/$name cannot be copied"
  done
}

usage_or_out "$@"
[[ -n $RAW ]] || fail "where are the texts? bash data_prep/prepare_corpus.sh RAW-FOLDER OUT"
NAMES=$(raw_names)
remember DATA=corpus MAX_TOKENS="$MAX_TOKENS" BPE_MERGES="$BPE_MERGES" \
  EXTRAPOLATE_LIMIT="$EXTRAPOLATE_LIMIT" GROUP_SIZE="$GROUP_SIZE" SWAPPED_SAMPLE="$SWAPPED_SAMPLE"
remember_sources $NAMES
stage raw collect
build
