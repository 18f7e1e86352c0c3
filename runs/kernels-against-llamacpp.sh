#!/usr/bin/env bash
# A target step of m rows: llama.cpp's weight types against specserve's classes, two threads each.
#
# Result (2026-11-29, commit 442cb1d, llama-cpp-python 0.3.36 built for this machine, torch 2.13.0+cpu, 2-core
# AMD EPYC with AVX-512; other programs ran, so all engines had real-time priority: chrt -f 50; --rounds 6), ms:
#
#   rows                   1      2      3      4      5      8     16     32   prompt of 512
#   llama.cpp file      9.85  16.27  21.76  25.07  33.00  41.86   72.6  146.0    1713
#   llama.cpp Q8_0      9.17  17.42  20.21  22.33  26.95  30.26   49.1   84.8     848
#   llama.cpp Q4_0      7.34  10.75  13.78  15.44  20.01  24.60   39.5   73.8     735
#   llama.cpp F16      11.65  21.59  23.31  24.64  25.79  35.20   57.1  101.7     939
#   specserve auto      4.61   4.79   5.46   6.24   7.13   9.35   16.4   31.1     353
#   specserve int8      6.50   7.05   7.48   8.36  10.04  10.98   17.8   34.5     432
#   specserve bfloat16 10.61  11.15  11.60  12.24  13.40  17.01   31.1   54.5     652
#   specserve float32  18.39  19.29  19.25  19.65  20.39  22.52   32.5   55.7     661
#   auto : file         2.10   3.44   3.93   4.17   4.72   4.43   4.58   4.69    5.09
#   auto : best type    1.56   2.23   2.48   2.50   2.92   2.66   2.58   2.46    2.20
#   int8 : Q8_0         1.39   2.40   2.59   2.67   2.76   2.70   2.73   2.51    2.13
#
# Provisional: the load was 10 to 18, llama.cpp's threads spin when a partner is late, and only its default attention
# (flash) was tried, so its side may be better on a quiet machine.
# A run before it (commit c99be5c, 5 rounds): auto : file 2.34 at 1 row, 4.10 at 4, 4.22 at 8; auto : best 1.57,
# 2.59, 2.64; int8 : Q8_0 1.36 at 1; T(8) / T(1) of float32 1.30.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --types, --classes, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/kernels_against_llamacpp.py "$@"
