#!/usr/bin/env bash
# Drafters without weights in an agent's loop: the same function five times over, each time with something changed.
#
# Result (2026-12-01, 2-core virtual machine (Intel Xeon), nothing beside, 3904ffe; 10 tasks), tokens per step / decode
# speed against no speculation, in int8 and below in the file's own class:
#
#            ngram 3          suffix 8   suffix 8, alone     default chain
#   turn 1   1.82 / 1.47       2.37 / 1.66       2.13 / 1.62       2.42 / 1.72
#   turn 2   3.51 / 2.63       7.87 / 3.85       8.07 / 3.86       7.82 / 3.82
#   mean     3.20 / 2.35       7.15 / 3.49       7.15 / 3.46       7.08 / 3.40
#
#   turn 1   1.69 / 1.40       2.17 / 1.58       1.97 / 1.54       2.21 / 1.49
#   turn 2   3.39 / 2.30       6.68 / 3.04       6.68 / 3.18       6.68 / 2.96
#   mean     3.21 / 2.16       6.83 / 2.91       6.76 / 2.94       6.77 / 2.80
#
# Needs HumanEval.jsonl and a machine that does nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/agent_loop.py "$@"
