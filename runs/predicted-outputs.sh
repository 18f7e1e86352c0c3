#!/usr/bin/env bash
# Decode speed when the request predicts its answer: the greedy answer itself, one line in the middle replaced.
#
# Result (2026-12-01, 2-core virtual machine (Intel Xeon), nothing beside, 3904ffe; HumanEval, int8, k = 16):
#
#                t/step tokens/s  ratio  median    min    max
#   prediction     7.08    434.7   3.31    3.72   0.92   5.92
#   none           1.00    131.3   1.00    1.00   1.00   1.00
#   accepted 27213, rejected 4269 prediction tokens
#
# Arguments go to the program beside this file: HumanEval.jsonl, then --prompts, --tokens, --json FILE.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/predicted_outputs.py "$@"
