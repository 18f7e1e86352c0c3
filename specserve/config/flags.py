"""From a command line to options by name: flags, dotted access into JSON options, a YAML file.

    parse_flags(command, ["small", "--config", "a.yaml", "--speculative-config.method", "ngram"])
    # {"model": "small", …what a.yaml says…, "speculative_config": {…, "method": "ngram"}}

Flags may be spelled with `_` or `-`. The command line wins over the file. Values stay as typed; the
configuration that takes them converts and checks them.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, _ArgumentGroup
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specserve.config.dotted import apply_dotted, split_dotted
from specserve.config.kinds import SWITCH
from specserve.config.options import Option, default_text, flag, nearest, options_of
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CONFIG, POSITIONAL = "config", "arguments"


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: what it does, and the configurations whose options are its flags.

    `positional` names what stands without a flag: an option, or with `takes_many` a list of its own.
    """

    name: str
    help: str
    configs: tuple[type[DataclassInstance], ...] = ()
    positional: str | None = None
    takes_many: bool = False

    @property
    def options(self) -> dict[str, Option]:
        return {name: found for config in self.configs for name, found in options_of(config).items()}


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")


def parse_flags(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Options by name, only those that were given. Raises `ConfigError`; ends the process after --help."""
    plain, dotted = split_dotted([_spelled(argument) for argument in arguments], command.options)
    found, rest = command_parser(command).parse_known_intermixed_args(plain)
    if rest:
        raise _unknown(rest, command)
    given = vars(found)
    positional, file = given.pop(POSITIONAL, None), given.pop(CONFIG, None)
    if positional and command.positional is not None:
        if given.get(command.positional, positional) != positional:
            raise ConfigError(
                f"{command.positional} is given twice: {positional!r} and a flag.", command.positional
            )
        given[command.positional] = positional
    values = {**(read_yaml(Path(file), command) if file else {}), **given}
    return apply_dotted(values, dotted)


def select(values: Mapping[str, Any], config: type[DataclassInstance]) -> dict[str, Any]:
    """Those of the options that are fields of `config`."""
    return {name: value for name, value in values.items() if name in options_of(config)}


def read_yaml(path: Path, command: Command) -> dict[str, Any]:
    """Options from a file, `_` or `-` in its keys. Raises `ConfigError`, also for an unknown key."""
    import yaml  # only here: no other command waits for it

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--config: cannot read {path} ({reason}).", CONFIG) from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"--config: {path} must hold options as key: value.", CONFIG)
    values = {str(key).replace("-", "_"): value for key, value in found.items()}
    for key in values:
        if key not in command.options:
            raise ConfigError(f"{path} has the unknown option {key!r}; {nearest(key, command.options)}", key)
    return values


def command_parser(command: Command) -> ArgumentParser:
    prog = f"specserve {command.name}"
    metavar = (command.positional or "").rstrip("s").upper()
    usage = f"{prog} {f'[{metavar}] ' if metavar else ''}[options]"
    parser = _Parser(prog, usage=usage, description=command.help, allow_abbrev=False)
    if metavar:
        nargs = "*" if command.takes_many else "?"
        parser.add_argument(POSITIONAL, nargs=nargs, metavar=metavar, default=SUPPRESS)
    if command.configs:
        parser.add_argument(flag(CONFIG), metavar="FILE", default=SUPPRESS, help="options from a YAML file")
    taken: set[str] = set()
    for config in command.configs:
        title = config.__name__.removesuffix("Config").removesuffix("Flags").lower()
        group = parser.add_argument_group(title)
        for f in fields(config):
            if "option" in f.metadata:
                _add(group, f.name, f.metadata["option"], default_text(f), taken)
    return parser


def _add(group: _ArgumentGroup, name: str, option: Option, default: str, taken: set[str]) -> None:
    """One flag. A short one goes to the first option that wants it."""
    names = [short for short in [option.short] if short and short not in taken] + [flag(name)]
    taken.update(names)
    built = "" if option.is_built else " [not built yet]"
    text = f"{option.help} (default: {default}){built}".replace("%", "%%")
    if option.kind is SWITCH:
        group.add_argument(*names, dest=name, action=BooleanOptionalAction, default=SUPPRESS, help=text)
        return
    many: dict[str, Any] = {"nargs": "+", "action": "extend"} if option.kind.takes_many else {}
    metavar = option.kind.metavar
    if option.choices or option.announced:
        metavar = "|".join(option.choices + option.announced)
    group.add_argument(*names, dest=name, metavar=metavar, default=SUPPRESS, help=text, **many)


def _spelled(argument: str) -> str:
    """`--max_num_seqs=4` with hyphens; what follows a point or an equals sign stays as it is."""
    if not argument.startswith("--"):
        return argument
    end = min(i for i in (argument.find("="), argument.find("."), len(argument)) if i >= 0)
    return argument[:end].replace("_", "-") + argument[end:]


def _unknown(rest: Sequence[str], command: Command) -> ConfigError:
    flags = [argument.partition("=")[0] for argument in rest if argument.startswith("-")]
    if not flags:
        return ConfigError(f"Unexpected argument {rest[0]!r}; see specserve {command.name} --help.")
    known = [flag(name) for name in [*command.options, CONFIG]]
    listing = f"specserve {command.name} --help"
    return ConfigError(f"Unknown flag {flags[0]}; {nearest(flags[0], known, listing)}", flags[0])
