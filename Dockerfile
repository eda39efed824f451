# A machine with an NVIDIA GPU, its driver and the NVIDIA container toolkit:
#   docker build --tag ablations .
#   docker run --rm --gpus all ablations                     runs make test-gpu
#   docker run --rm --gpus all --volume "$PWD/results:/opt/ablations/results" ablations \
#       .venv/bin/ablations run masking_ratio --scale gpu
# Ubuntu 24.04 has Python 3.12; the pinned torch from PyPI is built for CUDA 13.0 and brings its libraries.
FROM nvidia/cuda:13.0.0-base-ubuntu24.04

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bsdextrautils ca-certificates git make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

# the unprivileged user that the image has, with the id of most hosts' first user
RUN mkdir /opt/ablations && chown 1000:1000 /opt/ablations
USER 1000
WORKDIR /opt/ablations
ENV PIP_NO_CACHE_DIR=1

# Dependencies change seldom, code often: this layer needs only what the installation reads.
COPY --chown=1000:1000 Makefile pyproject.toml constraints.txt README.md LICENSE ./
COPY --chown=1000:1000 ablations/__init__.py ablations/__init__.py
RUN make .venv/.installed

COPY --chown=1000:1000 . .
# the files just copied may be younger than the installation of the layer above, which would be made again at every start
RUN touch .venv/.demo .venv/.installed
CMD ["make", "test-gpu"]
