#!/usr/bin/env bash
# From nothing to a BLEU score in a few minutes: make the demo corpus, train SHAPE, translate, score.
#
#   bash recipes/demo.sh [OUT]     (default: runs/demo)
#
# Environment variables (with their defaults):
#   UPDATES=600     training updates; more give a better score
#   MAX_SHIFT=20    SHAPE's K; a small model learns faster with a small one
#
# Interrupted and started again it goes on where it was; all of it is kept in OUT.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  awk 'NR > 1 && /^#/ {sub(/^# ?/, ""); print; next} NR > 1 {exit}' "$0"
  exit
fi
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONWARNINGS=ignore  # deprecations inside fairseq, many of them
export PYTHONPATH=$top${PYTHONPATH:+:$PYTHONPATH}
out=$(mkdir -p "${1:-runs/demo}" && cd "${1:-runs/demo}" && pwd)
user_dir=(--user-dir "$top/shape_fairseq")
model=$out/shape
log=$model/log.txt

say() { printf '\n\033[1m[%s] %s\033[0m\n' "$1" "$2"; }

say 1/4 "Make the demo corpus in $out/data"
bash "$top/data_prep/prepare_demo.sh" "$out/data"

say 2/4 "Train SHAPE for ${UPDATES:=600} updates with K = ${MAX_SHIFT:=20}"
mkdir -p "$model"
# A finished training is left alone: fairseq-train would do one more update each time.
if [[ ! -e $model/finished-$UPDATES ]]; then
  fairseq-train "$out/data/vanilla" "${user_dir[@]}" --cpu --seed 1 --save-dir "$model" \
    --arch transformer_shape_tiny --max-shift "$MAX_SHIFT" --share-all-embeddings \
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
    --decoder-attention-heads 4 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 0.003 --lr-scheduler inverse_sqrt \
    --warmup-updates 200 --max-tokens 2000 --max-update "$UPDATES" --no-epoch-checkpoints \
    --save-interval-updates 100 --keep-interval-updates 1 --disable-validation \
    --log-format tqdm >>"$log" || { tail -n 3 "$log" >&2; exit 1; }
  touch "$model/finished-$UPDATES"
fi

say 3/4 "Translate the validation set"
fairseq-generate "$out/data/vanilla" "${user_dir[@]}" --cpu --gen-subset valid --beam 4 \
  --path "$model/checkpoint_last.pt" --max-tokens 4000 --required-batch-size-multiple 1 \
  >"$out/generated.txt" 2>"$out/generate.log" || { tail -n 3 "$out/generate.log" >&2; exit 1; }
grep ^H- "$out/generated.txt" | cut -c3- | sort -n | cut -f3 |
  python -m data_prep.detokenize --lang de >"$out/translation.de"
head -n 3 "$out/translation.de"

say 4/4 "Score it"
sacrebleu "$out/data/reference/vanilla/valid.de" --input "$out/translation.de" --format text |
  tee "$out/bleu.txt"
echo "The model, its log and its translations are in $out"
