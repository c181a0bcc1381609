#!/usr/bin/env bash
# Train with fairseq's own scaling_nmt recipe on VANILLA (appendix F, table 7).
#
#   DATA=FOLDER bash recipes/scaling_nmt.sh MODEL      MODEL: ape, shape or rpe
#
# Environment variables as in recipes/vanilla.sh, with other defaults: MAX_TOKENS=3584,
# BATCH_TOKENS=458752 (8 GPUs with --update-freq 16), UPDATES=50000, SAVE_EVERY=1250.
# The page does not say how long to train: this is the paper's number of tokens, 22.4 billion.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"
if [[ ${ARCH_SIZE:-base} == base ]]; then
  BATCH_TOKENS=${BATCH_TOKENS:-458752}
  MAX_TOKENS=${MAX_TOKENS:-3584}
  UPDATES=${UPDATES:-50000}
  SAVE_EVERY=${SAVE_EVERY:-1250}
fi
choose_size
if [[ $ARCH_SIZE == base ]]; then
  WARMUP=4000
  LR=0.001
fi
WARMUP_INIT_LR=1e-07
# The page's dropout of 0.3 is for the big model; the paper's is the base one.
DROPOUT=(--dropout 0.1)
train scaling_nmt "$1"
