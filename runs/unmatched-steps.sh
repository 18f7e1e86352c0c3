#!/usr/bin/env bash
# What a drafter that may guess 64 tokens costs a step in which it guesses nothing.
#
# Result (2026-12-01, 2-core virtual machine (Intel Xeon), other programs running, `chrt -f 50`; 16 texts of 384
# tokens at temperature 2; below, 10 texts with --class int8):
#
#   k = 64            steps      ms       quartiles  to none  ms of drafting
#   none               1471   3.475   3.263   3.755    1.000           0.022
#   ngram 2-4          1428   3.488   3.287   3.750    1.004           0.043
#   suffix             1312   3.519   3.305   3.785    1.013           0.063
#   suffix, alone      1436   3.493   3.289   3.776    1.005           0.049
#
#   none                931   7.512   7.009   8.153    1.000           0.035
#   ngram 2-4           912   7.540   7.049   8.195    1.004           0.066
#   suffix              857   7.604   7.097   8.220    1.012           0.094
#   suffix, alone       914   7.562   7.078   8.164    1.007           0.077
#
# Goal: at most 1.02.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/unmatched_steps.py "$@"
