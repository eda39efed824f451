#!/usr/bin/env bash
# A visit to a GPU that is lent for minutes, bare and without network: pack here, train there, bring the results home.
#
#   benchmarks/lease.sh pack FOLDER GRID SCALE [OPTION...]  here: all that travels is written to FOLDER
#   bash FOLDER/lease.sh visit OUT MINUTES [DEVICE]         there: measures steps, trains for MINUTES, packs into OUT
#   benchmarks/lease.sh home OUT                            here: the results are taken in
#   benchmarks/lease.sh rehearse GRID SCALE [OPTION...]     here: all three on the CPU, in a temporary folder
#
# OPTIONs go to `ablations pack` and `run`, such as --slice 'tasks=[]'. WHEELS names a folder with what is not installed
# there. PARTS bounds each file of FOLDER and OUT (15MB). RESULTS is the results folder here. MEASURE is what the
# benchmark measures: core in 90 seconds, or full in four minutes. The device runs nothing but python, and needs torch
# and numpy.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
parts="${PARTS:-15MB}"
results="${RESULTS:-$root/results}"
measure="${MEASURE:-core}"

# Fills a folder with the pack, the texts of the benchmark, this script, and the options.
pack() {
    local folder="$1" grid="$2" scale="$3"
    shift 3
    mkdir -p "$folder"
    folder="$(cd "$folder" && pwd)"
    cd "$root"
    python -m ablations pack "$grid" --scale "$scale" "$@" ${WHEELS:+--wheels "$WHEELS"} --split "$parts" \
        --output "$folder/pack.tar.xz" --results-dir "$results"
    local cache
    cache="$(mktemp -d)"
    ABLATIONS_CACHE="$cache" python benchmarks/gpu.py "$measure" --device "${DEVICE:-cuda}" --prepare
    XZ_OPT=-9 tar -C "$cache" -cJf "$folder/bench.tar.xz" --exclude='*.lock' .
    rm -rf "$cache"
    cp benchmarks/lease.sh "$folder/"
    printf '%s\n' "$measure" >"$folder/measure"
    printf '%s\n' "$grid" --scale "$scale" "$@" >"$folder/options"
    du -ch "$folder"/* | tail -n 1
}

# On the device: the benchmark, then the runs, then what comes home. Each part has a limit of its own.
visit() {
    local out="$1" minutes="$2" device="${3:-cuda}" here work
    here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    work="$(mktemp -d)/visit"
    mkdir -p "$out"
    out="$(cd "$out" && pwd)"
    mapfile -t options <"$here/options"
    measure="$(cat "$here/measure")"
    export PYTHONUNBUFFERED=1 OMP_WAIT_POLICY=passive
    python "$here/unpack.py" "$here"/pack.tar.xz* --into "$work" | tee "$out/steps.txt"
    if [ -d "$work/wheels" ]; then
        python -m pip install --quiet --no-index --no-deps --target "$work/packages" "$work"/wheels/*.whl
        export PYTHONPATH="$work/packages"
    fi
    cd "$work/source"
    mkdir "$work/bench"
    tar -C "$work/bench" -xJf "$here/bench.tar.xz"
    ABLATIONS_CACHE="$work/bench" timeout 300 python benchmarks/gpu.py "$measure" --device "$device" \
        --output "$out/times.json" ||
        echo "the benchmark ended with $?; the runs come all the same"
    export ABLATIONS_CACHE="$work/cache"
    python -m ablations run "${options[@]}" --no-notebook --for "${minutes}m" |& tee "$out/run.txt" ||
        echo "the runs ended with ${PIPESTATUS[0]}"
    python -m ablations pack "${options[@]}" --results --split "$parts" --output "$out/results.tar.xz"
    ls -l "$out"
}

# Takes in what a visit brought home.
home() {
    local out
    out="$(cd "$1" && pwd)"
    cd "$root"
    python -m ablations unpack "$out"/results.tar.xz* --results-dir "$results"
    python -m ablations verify --results-dir "$results"
}

rehearse() {
    local folder
    folder="$(mktemp -d)"
    results="$folder/results"
    DEVICE=cpu pack "$folder/travels" "$@"
    ABLATIONS_DATA='' bash "$folder/travels/lease.sh" visit "$folder/out" "${MINUTES:-2}" cpu
    home "$folder/out"
}

case "${1:-}" in
pack | visit | home | rehearse) "$@" ;;
*) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
