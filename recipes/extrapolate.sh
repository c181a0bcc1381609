#!/usr/bin/env bash
# Train on EXTRAPOLATE, pairs of at most 50 subwords (table 2, second block).
#
#   DATA=FOLDER bash recipes/extrapolate.sh MODEL      MODEL: ape, shape or rpe
#
# Run the same command again to go on after an interruption. Environment variables:
#   DATA                 the folder that data_prep/prepare_*.sh made
#   SAVE                 for checkpoints and logs (checkpoints/extrapolate-MODEL-seedSEED)
#   GPUS                 GPUs on this machine (all); 0: the CPU, with CPU_RANKS=1 processes
#   SEED=1  MAX_SHIFT=500 (SHAPE)  UPDATES=200000  SAVE_EVERY=5000
#   MAX_TOKENS=3500      tokens that one GPU holds; 112,000 tokens make a batch on any machine
#   EXTRA                more options for fairseq-train; they win over the recipe's
#   ARCH_SIZE=tiny       a small model for a look on a CPU; then BATCH_TOKENS=4000 UPDATES=500
#   FP16=0               fp32 on GPUs; FP16=1: fp16 on the CPU
#   NODES  NODE_RANK  MASTER_ADDR  MASTER_PORT    several machines: run this on each
#   DRY_RUN=1            print the command, run nothing

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"
choose_size
train extrapolate "$1"
