#!/usr/bin/env bash
# The paper's experiments at demo size, ten minutes on two cores: shape-fairseq experiment recipes/demo.toml
#
#   bash recipes/demo.sh [OUT] [OPTION...]      OUT: runs/demo; --help shows the options
#   Example: bash recipes/demo.sh runs/again --dry-run

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
experiment "$RECIPES/demo.toml" "$@"
