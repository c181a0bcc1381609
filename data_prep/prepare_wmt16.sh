#!/usr/bin/env bash
# Prepare WMT'16 English-German, the data of the paper, from its public sources.
#
#   bash data_prep/prepare_wmt16.sh OUT            downloads 1.7 GB from statmt.org
#   RAW=DIR bash data_prep/prepare_wmt16.sh OUT    takes the sources from a folder:
#     wmt16_en_de.tar.gz, the old preprocessed archive, used from the BPE-encoded text on; or
#     training-parallel-{europarl-v7,commoncrawl,nc-v11}.tgz; and in both cases
#     newstest{2010,...,2016}.{en,de}, where missing `sacrebleu --echo` supplies them
#   Example: RAW=downloads bash data_prep/prepare_wmt16.sh data
#
# Environment variables (with their defaults):
#   BPE_MERGES=32000        joint BPE merges
#   EXTRAPOLATE_LIMIT=50    longest training pair of EXTRAPOLATE in subwords
#   GROUP_SIZE=10           sentences in a sequence of INTERPOLATE
#   SWAPPED_SAMPLE=10000    training sequences in the swapped set
#   MAX_TOKENS=80           longest training pair in tokens
#   SOURCE_LANG=en  TARGET_LANG=de    or the other way round
#   MAX_POSITIONS=          as in docs/data.md
#   LOCK=FILE               other download addresses and checksums

source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
BPE_MERGES=${BPE_MERGES:-32000}
EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-50}
LOCK=${LOCK:-$HERE/wmt16.lock.json}
ARCHIVE=wmt16_en_de.tar.gz
VALID_YEARS="newstest2010 newstest2011 newstest2012 newstest2013"
TEST_YEARS="newstest2014 newstest2015 newstest2016"
TRAIN=(europarl-v7.de-en commoncrawl.de-en news-commentary-v11.de-en)
EVALUATION=($VALID_YEARS $TEST_YEARS)
JOINED="valid $VALID_YEARS
test $TEST_YEARS"

sacrebleu_name() {
  case $1 in
    newstest2014) echo wmt14/full ;;
    newstest20*) echo "wmt${1#newstest20}" ;;
  esac
}

collect() {
  # The test sets come first: they are small, and without network one learns that at once.
  collect_newstests "$1"
  local file
  for file in europarl-v7:training commoncrawl: nc-v11:training-parallel-nc-v11; do
    extract "training-parallel-${file%%:*}.tgz" "${file#*:}" "$1"
  done
}

# extract ARCHIVE FOLDER DIR: the German-English texts in FOLDER of a source archive.
extract() {
  local archive name lang
  archive=$(source_file "$1" "$LOCK")
  case $1 in
    *europarl*) name=${TRAIN[0]} ;;
    *commoncrawl*) name=${TRAIN[1]} ;;
    *) name=${TRAIN[2]} ;;
  esac
  log "extracting $name"
  for lang in $SRC $TGT; do
    # --force-local: a colon in the path is no machine's name. A second file of that name is not joined.
    tar -xzOf "$archive" --force-local --occurrence=1 "${2:+$2/}$name.$lang" >"$3/$name.$lang" ||
      fail "$archive has no ${2:+$2/}$name.$lang: it is damaged or another archive"
  done
}

collect_newstests() {
  local year lang field
  for year in "${EVALUATION[@]}"; do
    for lang in $SRC $TGT; do
      if [[ $lang == "$SRC" ]]; then field=src; else field=ref; fi
      if [[ -n $RAW && -e $RAW/$year.$lang ]]; then
        cp "$RAW/$year.$lang" "$1/$year.$lang"
      elif [[ -n $RAW && -e $RAW/$year.$lang.gz ]]; then
        cp "$RAW/$year.$lang.gz" "$1/$year.$lang.gz"
      else
        "$PYTHON" -m sacrebleu -t "$(sacrebleu_name "$year")" -l "$SRC-$TGT" --echo "$field" \
          >"$1/$year.$lang" 2>"$OUT/sacrebleu.log" ||
          fail "sacrebleu cannot fetch $year (see $OUT/sacrebleu.log): without network put" \
            "$(echo newstest201{0..6}.{en,de}) and $(archives) into a folder DIR, run with RAW=DIR"
      fi
    done
  done
}

archives() { echo training-parallel-{europarl-v7,commoncrawl,nc-v11}.tgz; }

# The old archive: its training and newstest texts are tokenized and BPE-encoded already.
unpack_encoded() {
  local lang year
  tar -tzf "$RAW/$ARCHIVE" --force-local >"$1/members" ||
    fail "$RAW/$ARCHIVE is damaged or another archive"
  for lang in "$SRC" "$TGT"; do
    take_encoded "train.tok.clean.bpe.32000.$lang" "$1" "train.$lang"
    for year in "${EVALUATION[@]}"; do
      take_encoded "$year.tok.bpe.32000.$lang" "$1" "$year.$lang"
    done
  done
  rm "$1/members"
}

# take_encoded NAME FOLDER OUTPUT: the one file of that name, whatever folder of the archive it is in.
take_encoded() {
  local members
  mapfile -t members < <(awk -v name="$1" -F/ '$NF == name' "$2/members")
  case ${#members[@]} in
    0) fail "$RAW/$ARCHIVE has no $1: it is damaged or another archive" ;;
    1) ;;
    *) fail "$RAW/$ARCHIVE has ${#members[@]} files $1 (${members[*]}): keep one of them" ;;
  esac
  log "extracting $1"
  tar -xzOf "$RAW/$ARCHIVE" --force-local --occurrence=1 "${members[0]}" >"$2/$3" ||
    fail "$RAW/$ARCHIVE is damaged: $1 cannot be read"
}

# All that is taken from RAW.
raw_names() {
  local name
  if [[ -e $RAW/$ARCHIVE ]]; then echo "$ARCHIVE"; else archives | tr ' ' '\n'; fi
  for name in "${EVALUATION[@]/%/.$SRC}" "${EVALUATION[@]/%/.$TGT}"; do
    if [[ -e $RAW/$name ]]; then
      echo "$name"
    elif [[ -e $RAW/$name.gz ]]; then
      echo "$name.gz"
    fi
  done
}

[[ " $SRC $TGT " == " en de " || " $SRC $TGT " == " de en " ]] ||
  fail "these data are English and German: SOURCE_LANG and TARGET_LANG are en and de"
usage_or_out "$@"
remember DATA=wmt16 MAX_TOKENS="$MAX_TOKENS" BPE_MERGES="$BPE_MERGES" \
  EXTRAPOLATE_LIMIT="$EXTRAPOLATE_LIMIT" GROUP_SIZE="$GROUP_SIZE" SWAPPED_SAMPLE="$SWAPPED_SAMPLE"
NAMES=()
[[ -z $RAW ]] || mapfile -t NAMES < <(raw_names)
remember_sources "${NAMES[@]}"
if [[ -n $RAW && -e $RAW/$ARCHIVE ]]; then
  log "using $RAW/$ARCHIVE"
  stage raw collect_newstests
  stage encoded unpack_encoded
  finish
else
  stage raw collect
  build
fi
