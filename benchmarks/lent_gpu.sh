#!/usr/bin/env bash
# Some minutes of a GPU on a machine without network, by one command from the root of the checkout:
#
#   THERE="ssh lent" benchmarks/lent_gpu.sh GRID --scale SCALE [OPTION...]
#
# THERE runs a command line on that machine. MINUTES (10) are for the runs. Checkpoints come home to ../visit with the
# results, and go back with the next call, which resumes there. docs/how-to/gpu.md has the same step by step.
set -euo pipefail
python -m ablations run "$@" --no-notebook --prepare
tar -cz --exclude=.venv . | $THERE 'mkdir -p visit && tar -xz -C visit'
[ ! -d ../visit/.cache ] || tar -cz -C ../visit .cache | $THERE 'tar -xz -C visit'
$THERE "cd visit && python -m ablations run $(printf '%q ' "$@") --no-notebook --for ${MINUTES:-10}m" ||
    echo "the runs ended with $?; 75 says that the time was over"
mkdir -p ../visit
$THERE 'tar -cz -C visit results .cache/runs' | tar -xz -C ../visit
for part in results results/unpublished; do
    [ ! -d ../visit/$part/records ] || python -m ablations sync ../visit/$part --results-dir $part
done
