#!/usr/bin/env bash
# usage: run_gpu.sh SYSTEMS_DATA_DIR OUT_DIR: the fitted constants of every GPU that has tables.
# Peaks (dense, FLOP/s), memory bandwidth (B/s) and SMs are those of machines/data/*.toml.
set -euo pipefail
here=$(dirname "$0")
while read -r system chip bf16 fp8 fp4 hbm sms; do
  ${PYTHON:-python3} "$here/gpu_kernels.py" "$1" "$system" "$chip" "$bf16" "$fp8" "$fp4" "$hbm" "$sms" > "$2/kernels_$chip.toml"
done <<'CHIPS'
a100_sxm a100 312e12 0 0 2.039e12 108
h100_sxm h100 989.4e12 1978.9e12 0 3.35e12 132
h200_sxm h200 989.4e12 1978.9e12 0 4.8e12 132
b200_sxm b200 2250e12 4500e12 9e15 7.7e12 148
b300_sxm b300 2250e12 4500e12 14e15 7.7e12 148
gb200 gb200 2500e12 5000e12 10e15 8e12 148
gb300 gb300 2500e12 5000e12 15e15 8e12 148
CHIPS
