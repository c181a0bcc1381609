#!/usr/bin/env bash
# Train on EXTRAPOLATE, pairs of at most 50 subwords (table 2, second block).
#
#   DATA=FOLDER bash recipes/extrapolate.sh MODEL      MODEL: ape, shape, rpe, rope, alibi, ...
#   Example: DATA=data bash recipes/extrapolate.sh shape
#
# Run the same command again to go on after an interruption. Environment variables:
#   DATA                 the folder that data_prep/prepare_*.sh made
#   SAVE                 for checkpoints and logs (checkpoints/extrapolate-MODEL-seedSEED)
#   GPUS                 GPUs on this machine (all); 0: the CPU, with CPU_RANKS=1 processes
#   SEED=1  MAX_SHIFT=500 (SHAPE)  UPDATES=200000  SAVE_EVERY=5000
#   MAX_TOKENS=3500      tokens that one GPU holds; 112,000 tokens make a batch on any machine
#   EXTRA                more options for fairseq-train, quoted as in a shell; they win
#   ARCH_SIZE=tiny       a small model for a look on a CPU; then BATCH_TOKENS=4000 UPDATES=500
#   FP16=0               fp32 on GPUs; FP16=1: fp16 on the CPU
#   NODES  NODE_RANK  MASTER_ADDR  MASTER_PORT    several machines: run this on each
#   DRY_RUN=1            print the command with all of this in it, run nothing

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"

# Table 4, for APE on one GPU; 8 GPUs have --update-freq 4. The other models differ in one line:
#   SHAPE    --arch transformer_shape_wmt_en_de --max-shift 500
#   RPE      --arch transformer_rpe_wmt_en_de --max-relative-distance 16
# Noam's peak with factor 2 is --lr 2 / sqrt(512 * 8000). OpenNMT-py, with which the paper's models
# were trained, has one dropout for all three places.
train extrapolate "$1" \
  fairseq-train data/extrapolate --user-dir shape_fairseq \
  --task translation --source-lang en --target-lang de \
  --arch transformer_wmt_en_de --share-all-embeddings \
  --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.0 --clip-norm 0.0 \
  --lr-scheduler inverse_sqrt --lr 0.000988212 --warmup-updates 8000 --warmup-init-lr 0 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 3500 --update-freq 32 --max-update 200000 --fp16 --seed 1 \
  --save-dir checkpoints/extrapolate-ape-seed1 --log-file checkpoints/extrapolate-ape-seed1/train.log \
  --save-interval-updates 5000 --keep-interval-updates 10 --no-epoch-checkpoints \
  --required-batch-size-multiple 1 --num-workers 2 --log-interval 100 --ddp-backend pytorch_ddp
