"""The command `specserve`. What a command needs is imported when it runs, so `--help` is quick.

    specserve generate "Once upon a time" -sc '{"method": "ngram", "num_speculative_tokens": 4}'

A user's mistake is one line on stderr and exit code 2.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from specserve.bench.group import choose as choose_benchmark
from specserve.config.engine import EngineConfig, engine_config
from specserve.config.environment import read_environment
from specserve.config.flags import Command, parse_flags, select
from specserve.config.options import from_mapping, nearest
from specserve.config.server import ServerConfig, server_config
from specserve.config.shorthands import SpeculativeFlags, fold_shorthands
from specserve.config.terminal import ChatFlags, GenerateFlags, SamplingFlags
from specserve.errors import ConfigError, NotBuiltYet, UserError

if TYPE_CHECKING:
    from specserve.llm import LLM
    from specserve.types import SamplingParams, SpecDecodeMetrics

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(levelname)s %(asctime)s %(name)s: %(message)s"
DEFAULT_TOKENS = 256  # of `generate`; `chat` goes on until the model ends

ENGINE = (EngineConfig, SpeculativeFlags)
COMMANDS = (
    Command("serve", "Serve a model over HTTP.", (*ENGINE, ServerConfig), "model"),
    Command(
        "generate",
        "Continue prompts; without any, what stands on stdin.",
        (SamplingFlags, GenerateFlags, *ENGINE),
        "prompts",
        takes_many=True,
    ),
    Command("chat", "Talk to a model, here or on a server.", (SamplingFlags, ChatFlags, *ENGINE), "model"),
    Command("check", "Check a configuration and print it resolved.", (*ENGINE, ServerConfig), "model"),
    Command("models", "List the models that have a short name."),
    Command("bench", "Measure; specserve bench --help lists what."),
    Command("train", "Train a drafter. Not built yet."),
)
HELP = """\
usage: specserve COMMAND [options]

{commands}

specserve COMMAND --help says more; specserve --version says which one this is.
"""

Reply = Callable[[list[dict[str, Any]], "Tally"], Iterator[str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        print("specserve:", " ".join(str(error).split("\n")), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read stdout has left; Python would complain once more when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        commands = "\n".join(f"  {command.name:10}{command.help}" for command in COMMANDS)
        print(HELP.format(commands=commands), end="")
        return 0
    if name == "--version":
        from importlib.metadata import version

        print(version("specserve"))
        return 0
    known = {command.name: command for command in COMMANDS}
    if name not in known:
        raise ConfigError(f"Unknown command {name!r}; {nearest(name, known)}")
    run = _chosen(known[name], arguments[1:])
    _start_logging()
    run()
    return 0


def _chosen(command: Command, arguments: list[str]) -> Callable[[], None]:
    """The command ready to run: its flags are checked, it has not begun."""
    if command.name == "bench":
        return choose_benchmark(arguments)
    if command.name not in RUN:
        raise NotBuiltYet(f"specserve {command.name}")
    return partial(RUN[command.name], fold_shorthands(parse_flags(command, arguments)))


def _start_logging() -> None:
    environment = read_environment()
    logging.basicConfig(level=environment.log_level, format=LOG_FORMAT)
    for setting in environment.ignored:
        logger.info("%s has no effect here.", setting)


# --- serve, check, models -------------------------------------------------------------------------


def _serve(values: Mapping[str, Any]) -> None:
    engine = engine_config(select(values, EngineConfig))
    server = server_config(select(values, ServerConfig))
    from specserve.server.run import run

    run(engine, server)


def _check(values: Mapping[str, Any]) -> None:
    engine = engine_config(select(values, EngineConfig))
    server = asdict(server_config(select(values, ServerConfig)))
    server["api_key"] = f"{len(server['api_key'])} given"  # not the keys themselves
    from specserve.engine.check import check

    print(json.dumps({**check(engine), "server": server}, indent=2))


def _models(_: Mapping[str, Any]) -> None:
    from specserve.models.find import ALIASES, is_installed

    for name, alias in ALIASES.items():
        print(f"{name:16}{'installed' if is_installed(name) else alias.install}")


# --- generate -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Counts for the closing line of one reply. Times are on the clock of `time.monotonic`."""

    started: float = field(default_factory=monotonic)
    first: float | None = None
    num_tokens: int = 0
    mean_acceptance_length: float | None = None

    def count(self, num_tokens: int) -> None:
        if self.first is None:
            self.first = monotonic()
        self.num_tokens += num_tokens

    def close(self, metrics: SpecDecodeMetrics | None) -> None:
        if metrics is not None:
            self.mean_acceptance_length = metrics.mean_acceptance_length

    def line(self, now: float) -> str:
        seconds = max(now - self.started, 1e-9)
        parts = [f"{self.num_tokens} tokens", f"{self.num_tokens / seconds:.1f} tokens/s"]
        if self.first is not None:
            parts.append(f"first token after {self.first - self.started:.2f} s")
        if self.mean_acceptance_length is not None:
            parts.append(f"mean acceptance length {self.mean_acceptance_length:.2f}")
        return f"[{', '.join(parts)}]"


def _generate(values: Mapping[str, Any]) -> None:
    flags = from_mapping(GenerateFlags, select(values, GenerateFlags))
    sampling = from_mapping(SamplingFlags, select(values, SamplingFlags))
    prompts = values.get("prompts") or _read_prompt()
    llm = _load(values)
    params = _params(llm, sampling, DEFAULT_TOKENS)
    for prompt in prompts:
        tally = Tally()
        _print_pieces(_from_model(llm, params, prompt, tally))
        if flags.stats:
            print(tally.line(monotonic()))


def _read_prompt() -> list[str]:
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    if not text:
        raise ConfigError("Give a prompt: specserve generate TEXT, or on stdin.")
    return [text]


def _load(values: Mapping[str, Any]) -> LLM:
    engine_config(select(values, EngineConfig))  # a mistake is told before torch is imported
    from specserve.llm import LLM

    return LLM(**select(values, EngineConfig))


def _params(llm: LLM, flags: SamplingFlags, max_tokens: int | None) -> SamplingParams:
    """What the model recommends, with the flags that were given."""
    return replace(llm.get_default_sampling_params(), **{"max_tokens": max_tokens, **_given(flags)})


def _given(flags: SamplingFlags) -> dict[str, Any]:
    given = {f.name: getattr(flags, f.name) for f in fields(flags) if getattr(flags, f.name) != f.default}
    return {name: list(value) if name == "stop" else value for name, value in given.items()}


def _from_model(llm: LLM, params: SamplingParams, prompt: Any, tally: Tally) -> Iterator[str]:
    for output in llm.stream(prompt, params):
        tally.count(len(output.token_ids))
        tally.close(output.spec_decode_metrics)
        yield output.text


def _print_pieces(pieces: Iterator[str]) -> str:
    text = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        text += piece
    print(flush=True)
    return text


# --- chat -----------------------------------------------------------------------------------------


def _chat(values: Mapping[str, Any]) -> None:
    flags = from_mapping(ChatFlags, select(values, ChatFlags))
    sampling = from_mapping(SamplingFlags, select(values, SamplingFlags))
    reply = _server_reply(flags, sampling, values) if flags.url else _model_reply(sampling, values)
    messages = [{"role": "system", "content": flags.system_prompt}] if flags.system_prompt else []
    if flags.quick is not None:
        _turn(reply, messages, flags.quick, flags.stats)
        return
    for text in _typed_lines():
        _turn(reply, messages, text, flags.stats)


def _turn(reply: Reply, messages: list[dict[str, Any]], text: str, stats: bool) -> None:
    """Send a message and print the answer; both become history."""
    messages.append({"role": "user", "content": text})
    tally = Tally()
    answer = _print_pieces(reply(messages, tally))
    messages.append({"role": "assistant", "content": answer})
    if stats:
        print(tally.line(monotonic()))


def _typed_lines() -> Iterator[str]:
    """Non-empty lines until end of file or Ctrl-C."""
    print("Ctrl-D or Ctrl-C leaves.")
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line:
            yield line


def _model_reply(sampling: SamplingFlags, values: Mapping[str, Any]) -> Reply:
    llm = _load(values)
    params = _params(llm, sampling, None)
    return lambda messages, tally: _from_model(llm, params, messages, tally)


def _server_reply(flags: ChatFlags, sampling: SamplingFlags, values: Mapping[str, Any]) -> Reply:
    for name in select(values, EngineConfig):
        raise ConfigError(f"{name} is for a model in this process; with url the server decides it.", name)
    from specserve.server.client import Client

    client = Client(flags.url or "", flags.api_key or read_environment().client_api_key)
    model = flags.model_name or client.models()[0]
    return partial(_from_server, client, model, _given(sampling))


def _from_server(
    client: Any, model: str, options: Mapping[str, Any], messages: list[dict[str, Any]], tally: Tally
) -> Iterator[str]:
    for piece in client.chat(model, messages, options):
        if piece.text:
            tally.count(0)
        tally.num_tokens = piece.num_tokens or tally.num_tokens
        if piece.mean_acceptance_length is not None:
            tally.mean_acceptance_length = piece.mean_acceptance_length
        yield piece.text


RUN: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "serve": _serve,
    "generate": _generate,
    "chat": _chat,
    "check": _check,
    "models": _models,
}
