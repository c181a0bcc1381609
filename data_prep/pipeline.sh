# The stages that all prepare_*.sh scripts share; sourced, not run.
# shellcheck shell=bash
#
# Every stage fills a folder $OUT/NAME.partial and renames it to $OUT/NAME when it is complete. So
# what has its name is complete, running again skips it, and whatever a kill left is done again.
set -euo pipefail
unset CDPATH # with it, cd prints where it went

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$HERE/..${PYTHONPATH:+:$PYTHONPATH}"
# Texts are UTF-8 whatever the terminal is; fairseq opens some of its files with the default.
export PYTHONUTF8=1
[[ -t 2 ]] || export TQDM_DISABLE=1

SRC=${SOURCE_LANG:-en}
TGT=${TARGET_LANG:-de}
PYTHON=${PYTHON:-python}
RAW=${RAW:-}
GROUP_SIZE=${GROUP_SIZE:-10}
MAX_TOKENS=${MAX_TOKENS:-80}
SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-10000}
MAX_POSITIONS=${MAX_POSITIONS:-}
NUMBERS=()

log() { printf '[%s] %s\n' "$(date +%T)" "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

run() { "$PYTHON" -m "$@"; }

# usage_or_out "$@": take OUT from the command line; the header of the script is its help.
usage_or_out() {
  if [[ $# -ne 1 || $1 == -* ]]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then exit 0; else exit 2; fi
  fi
  check_languages
  check_numbers GROUP_SIZE MAX_TOKENS SWAPPED_SAMPLE BPE_MERGES EXTRAPOLATE_LIMIT "${NUMBERS[@]}"
  [[ -z $MAX_POSITIONS ]] || check_numbers MAX_POSITIONS
  [[ -z $RAW || -d $RAW ]] || fail "RAW=$RAW is not a folder"
  check_installed fairseq sacremoses
  mkdir -p -- "$1" || fail "cannot create the folder $1"
  OUT=$(cd -- "$1" && pwd)
  case $OUT in
    *[:,]*) fail "$OUT has a ':' or a ',', where fairseq takes a path apart: use another folder" ;;
  esac
  # What is in $OUT/raw is removed when it has to be made again: it must not be the user's only copy.
  [[ -z $RAW || $(cd -- "$RAW" && pwd -P)/ != "$(cd -- "$OUT" && pwd -P)/raw/"* ]] ||
    fail "RAW=$RAW is where $OUT keeps its copy of the texts: move them out of $OUT"
  # The stages inherit this lock, so it lasts until the last of their processes has ended.
  exec 9>"$OUT/.lock"
  # What a crash left behind ends within seconds.
  flock --wait 5 9 || fail "another preparation is still running in $OUT"
  trap 'stopped $?' EXIT
}

# All that a file or the environment says is looked at before it is used, and before it is remembered.
check_languages() {
  local name lang
  for name in SRC TGT; do
    lang=${!name}
    [[ $lang =~ ^[A-Za-z][A-Za-z0-9_]*$ ]] ||
      fail "'$lang' is not a language: SOURCE_LANG and TARGET_LANG are names like en or de"
  done
  [[ $SRC != "$TGT" ]] || fail "source and target are both $SRC: set SOURCE_LANG and TARGET_LANG"
}

# check_numbers NAME...: whole numbers of at least 1.
check_numbers() {
  local name
  for name; do
    [[ ${!name} =~ ^[1-9][0-9]{0,11}$ ]] ||
      fail "$name=${!name} is not a whole number of at least 1"
  done
}

# Found without importing: importing fairseq takes seconds.
check_installed() {
  "$PYTHON" -c 'import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' \
    "$@" || fail "$PYTHON does not have all of $*: install the project first (README.md)"
}

stopped() {
  [[ $1 -eq 0 ]] || log "stopped: complete stages are kept, run the same command again to go on"
}

# remember NAME=VALUE ...: one OUT holds the data of one set of parameters.
remember() {
  local file=$OUT/parameters.txt parameters former
  parameters=$(printf '%s\n' "$@" SOURCE_LANG="$SRC" TARGET_LANG="$TGT")
  if [[ -e $file ]]; then
    former=$(<"$file")
    # Folders that do not say are older than the choice of languages.
    [[ $former == *$'\n'SOURCE_LANG=* ]] || former+=$'\nSOURCE_LANG=en\nTARGET_LANG=de'
    [[ $former != "$parameters" ]] || return 0
    ! begun ||
      fail "$OUT was made with $(paste -sd' ' "$file"): use these parameters or another folder"
    rm -rf "$OUT/raw"
  fi
  write_atomically "$file" "$parameters"
}

# As long as nothing but raw is complete, parameters and sources may still be put right.
begun() {
  local name
  for name in tokenized bpe encoded text reference statistics dict.txt \
    vanilla extrapolate interpolate swapped; do
    [[ ! -e $OUT/$name ]] || return 0
  done
  return 1
}

write_atomically() {
  printf '%s\n' "$2" >"$1.partial"
  mv "$1.partial" "$1"
}

# remember_sources NAME...: one OUT holds the data of one set of sources, told by their checksums;
# those that are downloaded are told by their addresses, as the lock file has their checksums.
remember_sources() {
  local record=$OUT/sources.txt sums changed
  if [[ -n $RAW ]]; then
    sums=$(checksums "$@") || exit 1
  else
    sums=$(run data_prep.download --lock "$LOCK" --output "$OUT/download" --list) || exit 1
  fi
  if [[ -e $record ]]; then
    [[ $(<"$record") != "$sums" ]] || return 0
    if begun; then
      changed=$(diff "$record" <(printf '%s\n' "$sums") | sed -n 's/^[<>] [^ ]*  //p' | sort -u) || true
      fail "$OUT was made from other files ($(paste -sd' ' <<<"$changed")): use those, delete $OUT" \
        "or use another folder"
    fi
    rm -rf "$OUT/raw"
  elif [[ -e $OUT/raw ]] || begun; then
    log "$OUT is older than the record of its sources: they are not compared"
    return 0
  fi
  write_atomically "$record" "$sums"
}

checksums() {
  local name file sum
  for name; do
    file=$(source_file "$name") || exit 1
    sum=$(sha256sum <"$file") || fail "$file cannot be read"
    [[ $file != *.gz || $file == *.tar.gz ]] || gzip --test --quiet "$file" 2>/dev/null ||
      fail "$file is damaged: download or pack it again"
    printf '%s  %s\n' "${sum%% *}" "$name"
  done
}

# stage NAME FUNCTION: FUNCTION fills the folder that is its argument, which becomes $OUT/NAME.
stage() {
  local partial=$OUT/$1.partial
  if [[ -e $OUT/$1 ]]; then
    log "$1: complete, skipped"
    return
  fi
  log "$1: started"
  rm -rf "$partial"
  mkdir "$partial"
  "$2" "$partial"
  sync -f "$partial"
  mv -T "$partial" "$OUT/$1"
}

# source_file NAME LOCK: print where NAME is, in RAW or downloaded.
source_file() {
  if [[ -n $RAW ]]; then
    [[ ! -d $RAW/$1 ]] || fail "$RAW/$1 is a folder and not a file"
    [[ -e $RAW/$1 ]] || fail "$RAW/$1 is missing"
    printf '%s\n' "$RAW/$1"
  else
    # Inside $(...) the shell goes on after a failure.
    run data_prep.download --lock "$2" --output "$OUT/download" "$1" >&2 || exit 1
    printf '%s\n' "$OUT/download/$1"
  fi
}

# The stages from raw text on. $OUT/raw holds NAME.SRC and NAME.TGT (or .gz); the scripts set
#   TRAIN       the names of the training corpora
#   EVALUATION  the names of the other subsets
#   JOINED      lines "NAME PART PART ...": subsets that are made of others, for example valid
#   NUMBERS     (optional) names of more parameters that are whole numbers
tokenize() {
  run shape_fairseq.text.tokenizer --input "${TRAIN[@]/#/$OUT/raw/}" --output "$1/train" --max-tokens "$MAX_TOKENS" \
    --langs "$SRC" "$TGT"
  local name
  for name in "${EVALUATION[@]}"; do
    run shape_fairseq.text.tokenizer --input "$OUT/raw/$name" --output "$1/$name" --langs "$SRC" "$TGT"
  done
}

learn_bpe() {
  run shape_fairseq.text.bpe learn --input "$OUT/tokenized/train.$SRC" "$OUT/tokenized/train.$TGT" \
    --merges "$BPE_MERGES" --codes "$1/codes"
}

apply_bpe() {
  run shape_fairseq.text.bpe apply --codes "$OUT/bpe/codes" \
    --input "$OUT"/tokenized/*."$SRC" "$OUT"/tokenized/*."$TGT" --output "$1"
}

make_settings() {
  run data_prep.settings all --input "$OUT/encoded" --output "$1" --langs "$SRC" "$TGT" \
    --limit "$EXTRAPOLATE_LIMIT" --group-size "$GROUP_SIZE" --max-positions ${MAX_POSITIONS:+"$MAX_POSITIONS"}
  run data_prep.settings swapped --input "$1/interpolate/train" --output "$1/swapped" \
    --langs "$SRC" "$TGT" --sample "$SWAPPED_SAMPLE" --group-size "$GROUP_SIZE"
  join_subsets "$1"
}

# The texts to score against: never tokenized, one sentence a line, or joined like the data.
make_references() {
  local name lang order
  mkdir "$1/raw"
  run shape_fairseq.text.clean --input "${EVALUATION[@]/#/$OUT/raw/}" --output "$1/raw" --langs "$SRC" "$TGT"
  for name in "${EVALUATION[@]}"; do
    [[ $(wc -l <"$1/raw/$name.$TGT") -eq $(wc -l <"$OUT/encoded/$name.$TGT") ]] ||
      fail "the raw text of $name has not as many lines as its encoded text: mixed sources"
  done
  run data_prep.settings all --input "$1/raw" --output "$1" --langs "$SRC" "$TGT" \
    --limit "$EXTRAPOLATE_LIMIT" --group-size "$GROUP_SIZE"
  rm -r "$1/raw"
  join_subsets "$1"
  mkdir "$1/swapped"
  for order in original swapped; do
    for lang in $SRC $TGT; do
      run shape_fairseq.text.detokenize --lang "$lang" --input "$OUT/text/swapped/$order.$lang" \
        --output "$1/swapped/$order.$lang"
    done
  done
}

# Joined after the settings are made, so that no group of sentences reaches across two parts.
join_subsets() {
  local setting joined parts lang
  for setting in vanilla extrapolate interpolate; do
    while read -r joined parts; do
      [[ -n $joined ]] || continue
      for lang in $SRC $TGT; do
        (cd "$1/$setting" && for part in $parts; do cat "$part.$lang"; done) \
          >"$1/$setting/$joined.$lang"
      done
    done <<<"$JOINED"
  done
}

write_statistics() {
  local figure=()
  if (check_installed matplotlib) 2>/dev/null; then
    figure=(--figure "$1/length_distribution.png")
  else
    log "matplotlib is not installed: no length figure (pip install matplotlib)"
  fi
  run shape_fairseq.text.statistics --input "$OUT/text" --json "$1/statistics.json" \
    --langs "$SRC" "$TGT" "${figure[@]}"
  write_subsets "$1"
}

# A table for scripts and people: each subset, the parts it joins, and its name in sacreBLEU.
write_subsets() {
  local name parts
  {
    printf 'subset\tparts\tsacrebleu\n'
    while read -r name parts; do
      [[ -z $name ]] || printf '%s\t%s\t\n' "$name" "$parts"
    done <<<"$JOINED"
    for name in "${EVALUATION[@]}"; do
      printf '%s\t%s\t%s\n' "$name" "$name" "$(sacrebleu_name "$name")"
    done
  } >"$1/subsets.tsv"
}

# Only the test sets of WMT have a name in sacreBLEU.
sacrebleu_name() { :; }

# finish: the stages after the BPE-encoded text, which is also where the old archive joins in.
finish() {
  stage text make_settings
  stage reference make_references
  stage statistics write_statistics
  log "data-bins: started (their log is $OUT/binarize.log)"
  run data_prep.binarize --text "$OUT/text" --dictionary "$OUT/dict.txt" --output "$OUT" --langs "$SRC" "$TGT" \
    >>"$OUT/binarize.log" 2>&1 || fail "binarizing: $(tail -n 1 "$OUT/binarize.log")"
  log "done: $OUT has the data-bins vanilla, extrapolate, interpolate and swapped"
}

build() {
  stage tokenized tokenize
  stage bpe learn_bpe
  stage encoded apply_bpe
  finish
}
