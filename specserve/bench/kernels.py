"""What target steps of 1 to 32 rows cost, whole and op by op, against what the machine gives.

    specserve bench kernels [MODEL] [-q int8] [--rows 1,4,8] [--json FILE]

Verifying k guesses is a step of k + 1 rows. Steps run through the engine as it serves; all numbers of rows
take turns in every round, with probes of read bandwidth and multiplication between them on the same threads,
so that a change in the machine's mood hits all alike. docs/kernels.md says how to read the figures.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import track

from specserve.bench.circumstances import circumstances, classes_of
from specserve.bench.kernels_figures import document
from specserve.bench.kernels_order import OrderMeter
from specserve.bench.kernels_steps import Case, Measured, StepMeter, network_timer, program_of, run_rounds
from specserve.bench.kernels_table import print_tables
from specserve.bench.report import check_file, table_console, write_json
from specserve.config.bench import KernelsFlags
from specserve.config.engine import EngineConfig, engine_config
from specserve.config.flags import select
from specserve.config.options import from_mapping
from specserve.engine.build import Deployment, build
from specserve.errors import ConfigError
from specserve.ops import OpTimer
from specserve.ops.probe import Probes

logger = logging.getLogger(__name__)

LINE = ("rows", "step_ms", "host_ms", "roofline_share", "read_gb_per_s", "weight_class", "runner", "config")


def run(values: Mapping[str, Any]) -> None:
    """Measure and print; the last line is the main figures as JSON. Raises any `UserError`."""
    flags = from_mapping(KernelsFlags, select(values, KernelsFlags))
    config = engine_config({"seed": 0, **select(values, EngineConfig), "speculative_config": None})
    if values.get("speculative_config") is not None:
        logger.warning("speculative_config has no effect here: every number of rows is measured anyway.")
    check_file(flags.json)
    ops, timer = network_timer()
    deployment = build(config, is_offline=True, ops=ops)
    figures = measure(deployment, timer, flags)
    print_tables(figures, table_console())
    print(json.dumps({name: figures[name] for name in LINE}))
    write_json(flags.json, figures)


def measure(deployment: Deployment, timer: OpTimer, flags: KernelsFlags) -> dict[str, Any]:
    """All figures by their names in the file. `timer` is that of the deployment's ops."""
    cases = choose_cases(flags, deployment.scheduler.max_num_batched_tokens, deployment.max_model_len)
    engine = deployment.engine
    program = program_of(engine)
    probes = None if program is None else Probes(program.pool)
    order = None if program is None else OrderMeter(program.pool, program.ops)
    rounds = run_rounds(StepMeter(engine, timer), program, probes, cases, flags.iterations)
    measured = Measured()
    console = Console(stderr=True)
    total = flags.iterations + 1
    for number, measured in enumerate(  # noqa: B007  # the last one holds all
        track(rounds, "Measuring", total, console=console, transient=True, disable=not sys.stderr.isatty())
    ):
        if order is not None:
            order.measure(keeps=number > 0)
    native_ops = [] if program is None else program.ops
    return {
        **document(measured, native_ops),
        **classes_of(deployment),
        "exactness": [] if order is None else order.figures(),
        "runner": "eager" if program is None else "native",
        "config": circumstances(deployment, flags),
    }


def choose_cases(flags: KernelsFlags, max_rows: int, max_model_len: int) -> list[Case]:
    """Raises `ConfigError` for what the engine could not run."""
    most = max(flags.rows)
    if most > max_rows:
        raise ConfigError(
            f"rows={most} is more than the {max_rows} rows a step may have; ask for fewer or raise "
            "max_num_batched_tokens.",
            "rows",
        )
    if flags.context_len + most >= max_model_len:  # a step leaves a place for the token after its rows
        raise ConfigError(
            f"context_len={flags.context_len} and {most} rows leave no place in max_model_len="
            f"{max_model_len}; lower context_len to at most {max(0, max_model_len - most - 1)}.",
            "context_len",
        )
    if flags.input_len >= max_model_len:
        raise ConfigError(
            f"input_len={flags.input_len} is too long for max_model_len={max_model_len}; lower it to at most "
            f"{max_model_len - 1}, or to 0 to measure no prompt.",
            "input_len",
        )
    cases = [Case(rows, flags.context_len) for rows in sorted(set(flags.rows))]
    return cases + ([Case(flags.input_len, is_prompt=True)] if flags.input_len else [])
