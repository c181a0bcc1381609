#!/usr/bin/env bash
# The paper's experiments on real data, Multi30k: three settings, three models, through to report.html.
#
#   bash recipes/multi30k.sh [OUT]             downloads 1.3 MB; 45 minutes on two CPU cores (runs/multi30k)
#   RAW=DIR bash recipes/multi30k.sh [OUT]     takes {train,val,test_2016_flickr}.{en,de}.gz
#
# Interrupted and started again it goes on where it was; all of it is kept in OUT, logs in OUT/logs.
# Environment variables as in recipes/demo.sh, with other defaults:
#   SETTINGS="vanilla extrapolate interpolate"    MODELS="ape shape rpe"
#   VANILLA_UPDATES=1300  EXTRAPOLATE_UPDATES=1300  INTERPOLATE_UPDATES=1300
#   VANILLA_SHIFT=20      EXTRAPOLATE_SHIFT=20      INTERPOLATE_SHIFT=60      SHAPE's K
#   BATCH_TOKENS=2000  AVERAGE=3  BEAM=4  SWAPPED_SEQUENCES=300  SPEED_TURNS=15
#   BPE_MERGES=2000  EXTRAPOLATE_LIMIT=20  GROUP_SIZE=3    and the others of data_prep/prepare_multi30k.sh

source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"
[[ $# -gt 0 ]] || set -- runs/multi30k
arguments 1 "$@"

SETTINGS=${SETTINGS:-vanilla extrapolate interpolate} MODELS=${MODELS:-ape shape rpe}
VANILLA_UPDATES=${VANILLA_UPDATES:-1300} VANILLA_SHIFT=${VANILLA_SHIFT:-20}
EXTRAPOLATE_UPDATES=${EXTRAPOLATE_UPDATES:-1300} EXTRAPOLATE_SHIFT=${EXTRAPOLATE_SHIFT:-20}
INTERPOLATE_UPDATES=${INTERPOLATE_UPDATES:-1300} INTERPOLATE_SHIFT=${INTERPOLATE_SHIFT:-60}
BATCH_TOKENS=${BATCH_TOKENS:-2000} AVERAGE=${AVERAGE:-3} BEAM=${BEAM:-4}
SWAPPED_SEQUENCES=${SWAPPED_SEQUENCES:-300} SPEED_TURNS=${SPEED_TURNS:-15}
SIZE=${SIZE:-"--encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
--decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
--attention-dropout 0 --activation-dropout 0"}
# A small model on little text: a vocabulary of 6,000 would take nearly half of its time; three joined
# sentences, as in the demo, are easier to learn than ten.
export BPE_MERGES=${BPE_MERGES:-2000} EXTRAPOLATE_LIMIT=${EXTRAPOLATE_LIMIT:-20} GROUP_SIZE=${GROUP_SIZE:-3}
export SWAPPED_SAMPLE=${SWAPPED_SAMPLE:-$SWAPPED_SEQUENCES}
experiment multi30k "$1"
