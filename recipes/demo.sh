#!/usr/bin/env bash
# The paper's experiments at demo size: corpus, APE, SHAPE and RPE, translations, analyses, report.html.
#
#   bash recipes/demo.sh [OUT]           EXTRAPOLATE and INTERPOLATE, ten minutes on two cores (runs/demo)
#   FULL=1 bash recipes/demo.sh [OUT]    all nine cells, trained longer: an hour (runs/demo-full)
#
# Interrupted and started again it goes on where it was; all of it is kept in OUT, logs in OUT/logs.
# Environment variables (with their defaults, and those of FULL=1):
#   SETTINGS="extrapolate interpolate"    (all three)    MODELS="ape shape rpe"
#   VANILLA_UPDATES=1200 (3000)    EXTRAPOLATE_UPDATES=1200 (3000)    INTERPOLATE_UPDATES=1300 (4000)
#   VANILLA_SHIFT=20              EXTRAPOLATE_SHIFT=20              INTERPOLATE_SHIFT=60      SHAPE's K
#   INTERPOLATE_FALLING_LR=0.002 (none)    a learning rate that falls to zero from this, instead of the recipe's
#                           schedule; VANILLA_ and EXTRAPOLATE_FALLING_LR likewise (none)
#   BATCH_TOKENS=1000       tokens in a batch
#   SIZE                    options of fairseq-train that make the model's size
#   AVERAGE=3  BEAM=4       checkpoints to average; beam width
#   SWAPPED_SEQUENCES=100 (500)    sequences in which sentences are swapped
#   SPEED_TURNS=5 (15)      turns of each model when speed is measured
#   ANALYSES="token-scores length-bleu curves speed similarity swap lengths"
#   JOBS                    jobs side by side (one for each core)
#   EXTRA  SEED=1  GPUS=0   as in the training recipes
#   TRAIN_PAIRS=20000  VALID_PAIRS=200 (500)  TEST_PAIRS=200 (500)  NESTING=0.4
#   EXTRAPOLATE_LIMIT=12  GROUP_SIZE=3    and the others of data_prep/prepare_demo.sh

source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"
FULL=${FULL:-0}
[[ $# -gt 0 ]] || set -- "runs/demo$([[ $FULL == 0 ]] || echo -full)"
arguments 1 "$@"

# or_full DEFAULT FULL: the one that this run is for.
or_full() { [[ $FULL == 0 ]] && echo "$1" || echo "$2"; }

SETTINGS=${SETTINGS:-$(or_full "extrapolate interpolate" "vanilla extrapolate interpolate")}
MODELS=${MODELS:-ape shape rpe}
VANILLA_UPDATES=${VANILLA_UPDATES:-$(or_full 1200 3000)}
EXTRAPOLATE_UPDATES=${EXTRAPOLATE_UPDATES:-$(or_full 1200 3000)}
INTERPOLATE_UPDATES=${INTERPOLATE_UPDATES:-$(or_full 1300 4000)}
VANILLA_SHIFT=${VANILLA_SHIFT:-20} EXTRAPOLATE_SHIFT=${EXTRAPOLATE_SHIFT:-20}
# As long as most sequences: with a smaller K a position still tells which sentence it is in.
INTERPOLATE_SHIFT=${INTERPOLATE_SHIFT:-60}
# With so few updates, SHAPE would not have learned the ends of long sequences otherwise.
INTERPOLATE_FALLING_LR=${INTERPOLATE_FALLING_LR-$(or_full 0.002 "")}
BATCH_TOKENS=${BATCH_TOKENS:-1000}
AVERAGE=${AVERAGE:-3} BEAM=${BEAM:-4}
SWAPPED_SEQUENCES=${SWAPPED_SEQUENCES:-$(or_full 100 500)} SPEED_TURNS=${SPEED_TURNS:-$(or_full 5 15)}
# Few epochs of a regular language need no dropout, and dropout costs a CPU much time.
SIZE=${SIZE:-"--encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
--decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
--dropout 0 --attention-dropout 0 --activation-dropout 0"}
export TRAIN_PAIRS=${TRAIN_PAIRS:-20000} NESTING=${NESTING:-0.4}
export VALID_PAIRS=${VALID_PAIRS:-$(or_full 200 500)} TEST_PAIRS=${TEST_PAIRS:-$(or_full 200 500)}
export EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-12} GROUP_SIZE=${GROUP_SIZE:-3}
export SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-$SWAPPED_SEQUENCES}
experiment demo "$1"
