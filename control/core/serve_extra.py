"""engine.extra_args: the operator's own options of `vllm serve`, judged before minutes of start are lost on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control.core.complaints import did_you_mean
from control.core.errors import UsageError
from control.core.facts import Flags

_SECRETS = ("api-key", "hf-token")
_NEVER = {
    ("load-format", "pt"): "it looks for *.pt files, and the weights are safetensors",
    ("load-format", "dummy"): "it serves random weights, and fails for this model on 0.26.0",
}
_WHY = "The engine would refuse these words, or be started differently from what the plan says."


@dataclass(frozen=True)
class Extra:
    """One option as it was written."""

    name: str  # without dashes, with a leading no- if there is one
    values: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return (f"--{self.name}", *self.values)


def parse(words: Sequence[str], flags: Flags, ours: Mapping[str, str]) -> tuple[Extra, ...]:
    """Options with their values; `ours` says which setting renders an option already. All complaints at once."""
    found: list[Extra] = []
    wrong: list[str] = []
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.append(Extra(name, (value,) if equals else ()))
        elif not found:
            wrong.append(f"engine.extra_args[{place}]: expected an option that starts with --, found {word!r}")
        else:
            found[-1] = Extra(found[-1].name, (*found[-1].values, word))
    wrong += [f"engine.extra_args: {line}" for extra in found if (line := _judge(extra, flags, ours))]
    names = [extra.name for extra in found]
    wrong += [f"engine.extra_args: --{name} is written twice; keep one" for name in names if names.count(name) > 1]
    if wrong:
        raise UsageError("\n".join(dict.fromkeys(wrong)), _WHY, "Correct engine.extra_args.")
    return tuple(found)


def _judge(extra: Extra, flags: Flags, ours: Mapping[str, str]) -> str | None:
    name = plain(extra.name, flags)
    if name in _SECRETS:
        return f"--{name} would show a secret in the list of processes; the bundle hands keys over in files"
    if name not in flags.known:
        return f"--{extra.name} is no option of any known release{_hint(name, flags)}; write names in full"
    if name in ours:
        return f"--{name} is rendered from {ours[name]}; change that instead"
    if any(value.lower() in ("true", "false") for value in extra.values):
        return f"--{name} is a switch and takes no word after it: write --{name} or --no-{name}"
    bad = next((why for (flag, value), why in _NEVER.items() if flag == name and value in extra.values), None)
    return f"--{name} {' '.join(extra.values)} cannot serve this model: {bad}" if bad else None


def plain(name: str, flags: Flags) -> str:
    """`enforce-eager` of `no-enforce-eager`; underscores are dashes to the engine."""
    name = name.replace("_", "-")
    positive = name.removeprefix("no-")
    return positive if name not in flags.known and positive in flags.known else name


def _hint(name: str, flags: Flags) -> str:
    longer = sorted(known for known in flags.known if name and known.startswith(name))
    return f" (did you mean --{longer[0]}?)" if longer else did_you_mean(name, flags.known).replace("mean ", "mean --")
