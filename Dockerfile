# shape-fairseq in a container that ends in the demo.
#
#   docker build -t shape-fairseq --build-arg TORCH_INDEX=INDEX .    CPU: INDEX is the address of the CPU
#                                                                    builds on PyTorch's Get Started page
#   docker build -t shape-fairseq --build-arg DEVICE=cuda .          GPU: pip's own torch, with CUDA
#   docker run --rm -v "$PWD/runs:/shape-fairseq/runs" shape-fairseq    (--gpus all) make demo
#
# NOT BUILT YET: this file was written on a machine without a Docker engine. `make setup` was run there
# outside a container, the rest of this file was not; please report what is wrong.
FROM python:3.11-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ make \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /shape-fairseq
ARG DEVICE=cpu
ARG TORCH_INDEX=
RUN test "$DEVICE" = cuda || test -n "$TORCH_INDEX" \
 || { echo "give --build-arg TORCH_INDEX=... (CPU) or --build-arg DEVICE=cuda" >&2; exit 1; }

# The environment changes less often than the sources, so it is a layer of its own.
COPY setup.py setup.sh constraints.txt pyproject.toml Makefile README.md LICENSE ./
COPY shape_fairseq shape_fairseq
RUN PIP_NO_CACHE_DIR=1 PIP_EXTRA_INDEX_URL="$TORCH_INDEX" make setup
COPY . .

CMD ["make", "demo"]
