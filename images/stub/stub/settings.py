"""What the stand-in is told, all of it by environment variables."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from stub.flags import UnknownFlag, parse
from stub.release import RELEASES, Release


class BadSetting(Exception):
    """A variable that cannot be used; its text is the one line that is printed."""


@dataclass(frozen=True)
class Settings:
    """The stand-in's settings; each field is the variable STUB_<NAME>."""

    host: str = "0.0.0.0"  # inside a container: the network around it is the fence
    port: int = 8000
    control_port: int = 9200  # 0: no control port
    model: str = "stub"
    max_model_len: int = 131_072
    max_num_seqs: int = 64
    load_s: float = 0.0
    prefill_tokens_per_s: float = 20_000.0
    decode_tokens_per_s: float = 40.0
    default_max_tokens: int = 64
    shutdown_timeout_s: float = 300.0
    tokenizer: str = "pieces"  # or "bytes", the tokenizer of the recorded model
    release: str = "0.26.0"  # the release stood in for
    mode: str = "plain"  # or deepseek_v4: that tokenizer mode, with its tool and reasoning parsers
    flags: Mapping[str, int] = field(default_factory=dict)  # flags of the real server that change answers
    sigterm: str = "drain"  # what a SIGTERM while serving leads to; see SIGTERMS
    drain_end: str = "error"  # what the end of the drain time leads to: error or hang
    sigterm_load: str = "finish"  # what a first SIGTERM during the load leads to: finish, stuck or die
    exit_lag_s: float = 0.0  # how long the process stays after its last stream
    api_key: str = ""  # VLLM_API_KEY, as the real server reads it

    @property
    def plays(self) -> Release:
        """The release stood in for."""
        return RELEASES[self.release]

    @property
    def v4(self) -> bool:
        """Whether prompts, tools and thinking are DeepSeek V4's."""
        return self.mode == "deepseek_v4"


# drain: --shutdown-timeout N. abort, error and hang: the three ways in which it can end without one. swallow: nothing
# happens, ever; only SIGKILL ends the process.
SIGTERMS = ("drain", "abort", "error", "hang", "swallow")


@dataclass(frozen=True)
class Rule:
    """How one variable is read and which values it may have."""

    read: Callable[[str], object]
    allowed: Callable[[object], bool]
    expected: str


def _number(low: float, high: float = math.inf) -> Callable[[object], bool]:
    return lambda value: isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high


_PORT = Rule(int, _number(0, 65_535), "a port, 0 to 65535")
_COUNT = Rule(int, _number(1), "an integer of at least 1")
_RATE = Rule(float, _number(0.001), "a number of at least 0.001")
_SECONDS = Rule(float, _number(0), "seconds, at least 0")
_TEXT = Rule(str, bool, "a text that is not empty")


def _one_of(*values: str) -> Rule:
    text = f"{', '.join(values[:-1])} or {values[-1]}"
    return Rule(str, lambda value: value in values, text)


RULES: Mapping[str, Rule] = {
    "host": _TEXT,
    "port": _PORT,
    "control_port": _PORT,
    "model": _TEXT,
    "max_model_len": _COUNT,
    "max_num_seqs": _COUNT,
    "load_s": _SECONDS,
    "prefill_tokens_per_s": _RATE,
    "decode_tokens_per_s": _RATE,
    "default_max_tokens": _COUNT,
    "shutdown_timeout_s": _SECONDS,
    "tokenizer": _one_of("pieces", "bytes"),
    "release": _one_of(*RELEASES),
    "mode": _one_of("plain", "deepseek_v4"),
    "flags": Rule(str, lambda value: True, "flags of vLLM"),
    "sigterm": _one_of(*SIGTERMS),
    "drain_end": _one_of("error", "hang"),
    "sigterm_load": _one_of("finish", "stuck", "die"),
    "exit_lag_s": _SECONDS,
}
PREFIX = "STUB_"


def from_environment(environ: Mapping[str, str], arguments: Sequence[str] = ()) -> Settings:
    """The settings of a process environment and of the real server's flags; BadSetting says what is wrong first."""
    known = {PREFIX + name.upper(): name for name in RULES}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in known:
            raise BadSetting(_unknown(variable, list(known)))
    values = {
        name: _read(variable, RULES[name], environ[variable]) for variable, name in known.items() if variable in environ
    }
    release = RELEASES[str(values.get("release", Settings.release))]
    try:
        values["flags"] = {**parse(str(values.get("flags", "")), release), **parse(arguments, release)}
    except (UnknownFlag, ValueError) as error:
        raise BadSetting(str(error)) from None
    return Settings(**values, api_key=environ.get("VLLM_API_KEY", ""))  # type: ignore[arg-type]


def _read(variable: str, rule: Rule, text: str) -> object:
    try:
        value = rule.read(text)
    except ValueError:
        value = None
    if value is None or not rule.allowed(value):
        raise BadSetting(f"{variable}: expected {rule.expected}, found {text!r}")
    return value


def _unknown(variable: str, known: list[str]) -> str:
    near = difflib.get_close_matches(variable, known, 1)
    return f"{variable}: unknown setting" + (f" (did you mean {near[0]}?)" if near else "")


assert {field.name for field in fields(Settings)} - {"api_key"} == set(RULES)
