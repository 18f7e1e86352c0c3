#!/usr/bin/env bash
# What a drafter that may guess 64 tokens costs a step in which it guesses nothing.
#
# Result (2026-11-30, 2-core virtual machine (Intel Xeon), other programs running, `chrt -f 50`; the embedded file
# as it is; 16 texts of 384 tokens at temperature 2):
#
#   k = 64            steps      ms       quartiles  to none  ms of drafting
#   none               1471   6.507   5.960   7.052    1.000           0.033
#   ngram 2-4          1428   6.528   5.974   7.075    1.003           0.041
#   suffix             1312   6.556   6.001   7.080    1.008           0.080
#   suffix, alone      1436   6.512   5.983   7.097    1.001           0.057
#
# Goal: at most 1.02.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/unmatched_steps.py "$@"
