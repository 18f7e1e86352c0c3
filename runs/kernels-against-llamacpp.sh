#!/usr/bin/env bash
# A target step of m rows: llama.cpp's weight types against specserve's classes, two threads each.
#
# Result (2026-11-29, commit 4c4be64, llama-cpp-python 0.3.36 built for this machine, torch 2.13.0+cpu, 2-core
# AMD EPYC with AVX-512, nothing beside it; --rounds 15 --rows 1 2 4 5 8), ms:
#
#   rows                   1      2      4      5      8   prompt of 512
#   llama.cpp file      9.68  15.83  23.58  27.85  36.60    1563
#   llama.cpp Q8_0      8.28  15.93  20.65  25.58  29.68     717
#   llama.cpp Q4_0      6.61  10.57  15.09  20.14  24.09     600
#   llama.cpp F16      11.26  19.56  23.00  23.52  32.28     793
#   specserve auto      4.49   4.66   5.42   6.14   7.81     320
#   specserve int8      5.73   6.00   6.62   7.16   9.10     386
#   specserve bfloat16 10.04  10.28  11.24  11.98  15.17     592
#   specserve float32  17.85  17.84  19.25  19.29  20.70     607
#   auto : file         2.12   3.36   4.14   4.59   4.67    4.82
#   auto : best type    1.51   2.17   2.72   3.12   2.87    1.84
#   int8 : Q8_0         1.47   2.61   3.15   3.50   3.06    1.83
#
# With --attention plain for llama.cpp (6 rounds, something beside it) at 1, 4, 5, 8 rows and the prompt: auto :
# file 2.00, 4.00, 4.42, 4.47, 5.42; auto : best 1.44, 2.61, 2.99, 2.71, 2.30; int8 : Q8_0 1.39, 2.92, 3.31, 3.01,
# 2.19. A first run of 2 rounds with all rows had auto : best 1.22 for 1 row, from rounds of 4.6 and 6.3 ms.
#
# On a second machine (2026-11-30, ac5e276, 2-core Intel Xeon with AVX-512, 5 rounds) at 1, 4, 5, 8 rows and the
# prompt: auto : file 2.15, 3.39, 3.85, 4.35, 4.54; auto : best 2.00, 2.40, 2.91, 2.54, 1.91; int8 : Q8_0 1.74,
# 2.41, 2.61, 2.70, 2.09; T(8) / T(1) of float32 1.43.
#
# Needs both in one environment, and a machine that does nothing else:
#   scripts/setup && .venv/bin/python -m pip install llama-cpp-python==0.3.36
# Arguments go to the program beside this file (--rounds, --types, --classes, --json FILE).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/kernels_against_llamacpp.py "$@"
