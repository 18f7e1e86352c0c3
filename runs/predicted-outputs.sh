#!/usr/bin/env bash
# Decode speed when the request predicts its answer: the greedy answer itself, one line in the middle replaced.
#
# Arguments go to the program beside this file: HumanEval.jsonl, then --prompts, --tokens, --json FILE.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/predicted_outputs.py "$@"
