#!/usr/bin/env bash
# Prepare Multi30k English-German (29,000 image captions): a real benchmark for a laptop.
#
#   bash data_prep/prepare_multi30k.sh OUT            downloads 1.3 MB
#   RAW=DIR bash data_prep/prepare_multi30k.sh OUT    takes {train,val,test_2016_flickr}.{en,de}.gz
#   Example: SOURCE_LANG=de TARGET_LANG=en bash data_prep/prepare_multi30k.sh data
#
# Environment variables (with their defaults):
#   BPE_MERGES=6000         joint BPE merges
#   EXTRAPOLATE_LIMIT=17    longest training pair of EXTRAPOLATE in subwords
#   GROUP_SIZE=10           sentences in a sequence of INTERPOLATE
#   SWAPPED_SAMPLE=1000     training sequences in the swapped set
#   MAX_TOKENS=80           longest training pair in tokens
#   SOURCE_LANG=en  TARGET_LANG=de    the direction, or other languages of Multi30k in RAW
#   MAX_POSITIONS=          as in docs/data.md
#   LOCK=FILE               other download addresses and checksums

SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-1000}
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
BPE_MERGES=${BPE_MERGES:-6000}
EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-17}
LOCK=${LOCK:-$HERE/multi30k.lock.json}
TRAIN=(train)
EVALUATION=(valid test)
JOINED=

collect() {
  local name lang file
  for name in train val test_2016_flickr; do
    for lang in $SRC $TGT; do
      file=$(source_file "$name.$lang.gz" "$LOCK")
      case $name in
        val) cp "$file" "$1/valid.$lang.gz" ;;
        test_*) cp "$file" "$1/test.$lang.gz" ;;
        *) cp "$file" "$1/$name.$lang.gz" ;;
      esac
    done
  done
}

usage_or_out "$@"
remember DATA=multi30k MAX_TOKENS="$MAX_TOKENS" BPE_MERGES="$BPE_MERGES" \
  EXTRAPOLATE_LIMIT="$EXTRAPOLATE_LIMIT" GROUP_SIZE="$GROUP_SIZE" SWAPPED_SAMPLE="$SWAPPED_SAMPLE"
remember_sources {train,val,test_2016_flickr}.{"$SRC","$TGT"}.gz
stage raw collect
build
