#!/usr/bin/env bash
# Make a SHAPE model of a finished APE model: fine-tune it with shifted positions.
#
#   DATA=FOLDER bash recipes/adapt.sh CHECKPOINT
#   Example: DATA=data bash recipes/adapt.sh checkpoints/vanilla-ape-seed1/average-10-at-200000.pt
#
# The recipe.txt beside CHECKPOINT tells its setting, size and options, which stay as they are;
# docs/results tells how many updates it takes. The result has the name of a SHAPE model from scratch:
# evaluate it with another RESULTS. Environment variables as in
# recipes/vanilla.sh, with other defaults: SAVE=checkpoints/adapt-SETTING-seedSEED, UPDATES=20000 and
# SAVE_EVERY=1000 (400 and 40 for a small model); BATCH_TOKENS is the checkpoint's.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"

# For one GPU. The learning rate falls to zero at the last update; INTERPOLATE needs the 4,096 positions.
train adapt "$1" \
  fairseq-train data/vanilla --user-dir shape_fairseq \
  --finetune-from-model checkpoints/vanilla-ape-seed1/average-10-at-200000.pt \
  --task translation --source-lang en --target-lang de \
  --arch transformer_shape_wmt_en_de --max-shift 500 --share-all-embeddings \
  --max-source-positions 4096 --max-target-positions 4096 \
  --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.0 --clip-norm 0.0 \
  --lr-scheduler cosine --lr 0.0005 --warmup-updates 1000 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 3500 --update-freq 32 --max-update 20000 --fp16 --seed 1 \
  --save-dir checkpoints/adapt-vanilla-seed1 --log-file checkpoints/adapt-vanilla-seed1/train.log \
  --save-interval-updates 1000 --keep-interval-updates 10 --no-epoch-checkpoints \
  --required-batch-size-multiple 1 --num-workers 2 --log-interval 100 --ddp-backend pytorch_ddp
