#!/usr/bin/env bash
# Drafters without weights in an agent's loop: the same function five times over, each time with something changed.
#
# Result: none yet.
#
# Needs HumanEval.jsonl and a machine that does nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-.venv/bin/python}" runs/agent_loop.py "$@"
