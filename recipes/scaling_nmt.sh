#!/usr/bin/env bash
# Train with fairseq's own scaling_nmt recipe on VANILLA (appendix F, table 7).
#
#   DATA=FOLDER bash recipes/scaling_nmt.sh MODEL      MODEL: ape, shape, rpe, rope, alibi, ...
#   Example: DATA=data bash recipes/scaling_nmt.sh shape
#
# Environment variables as in recipes/vanilla.sh, with other defaults: MAX_TOKENS=3584,
# BATCH_TOKENS=458752 (8 GPUs with --update-freq 16), UPDATES=50000, SAVE_EVERY=1250.
# The page does not say how long to train: this is the paper's number of tokens, 22.4 billion.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"

# For APE on one GPU; the other models differ in --arch as in recipes/vanilla.sh. The page's dropout
# of 0.3 is for the big model; the paper's is the base one.
train scaling_nmt "$1" \
  fairseq-train data/vanilla --user-dir shape_fairseq \
  --task translation --source-lang en --target-lang de \
  --arch transformer_wmt_en_de --share-all-embeddings --dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.0 --clip-norm 0.0 \
  --lr-scheduler inverse_sqrt --lr 0.001 --warmup-updates 4000 --warmup-init-lr 1e-07 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 3584 --update-freq 128 --max-update 50000 --fp16 --seed 1 \
  --save-dir checkpoints/scaling_nmt-ape-seed1 --log-file checkpoints/scaling_nmt-ape-seed1/train.log \
  --save-interval-updates 1250 --keep-interval-updates 10 --no-epoch-checkpoints \
  --required-batch-size-multiple 1 --num-workers 2 --log-interval 100 --ddp-backend pytorch_ddp
