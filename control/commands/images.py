"""`images build`, `pull`, `verify` and `list`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from control.context import Control
from control.core import image_sources
from control.core.errors import PreflightRefused
from control.core.image_sources import Look
from control.options import json_option, pass_control, settings_option
from control.steps import images, survey

names_argument = click.argument("names", nargs=-1, metavar="[NAME...]")
WRONG = 1


@click.group("images")
def command() -> None:
    """Build, pull, verify and list the images."""


@command.command("build")
@names_argument
@settings_option
@pass_control
def build(control: Control, names: Sequence[str]) -> None:
    """Build what is missing or whose inputs changed; needs no container registry.

    Without NAME what the configured kind of engine needs.
    """
    _ = control.dockerd  # says why the daemon does not answer, before a build fails with less
    with control.console.step("images") as step:
        wanted = names or [ref.name for ref in images.for_plan(control, None) if ref.build]
        built = images.build_all(control, wanted)
        step.text = f"{', '.join(built)} built" if built else "all there, nothing to build"


@command.command("pull")
@names_argument
@click.option("--renew", is_flag=True, help="Learn the digests anew: take what the tags stand for now.")
@settings_option
@pass_control
def pull(control: Control, names: Sequence[str], renew: bool) -> None:
    """Fetch images from their registries or the mirror, each by its digest.

    The first pull of a tag learns its digest (config/images.lock.yaml); later ones must match. Without NAME what the
    stack needs and is not built here. engine:v0.26.0-cu129 names another tag.
    """
    wanted = [seen for seen in _looks(control, names) if names or seen.source != "build"]
    if not wanted:
        control.console.say("images", "nothing to pull: this kind of engine runs images that are built here")
    for seen in wanted:
        with control.console.step("pull") as step:
            step.text = f"{seen.ref.name}: {seen.remote}"
            step.text += f"\n{images.pull(control, seen, renew)}"


@command.command("verify")
@names_argument
@json_option
@settings_option
@pass_control
@click.pass_context
def verify(context: click.Context, control: Control, names: Sequence[str], as_json: bool) -> None:
    """Compare images with this clone, with the digests learnt, and with what their tags stand for now."""
    verdicts = [images.verified(control, seen) for seen in _looks(control, names)]
    if as_json:
        control.console.json([vars(verdict) for verdict in verdicts])
    else:
        rows = [(v.name, v.reference, _digest(v.digest, v.source), v.outcome, v.text) for v in verdicts]
        control.console.table(("image", "reference", "digest", "verdict", "seen"), rows)
    context.exit(WRONG if any(verdict.outcome == "wrong" for verdict in verdicts) else 0)


@command.command("list")
@json_option
@settings_option
@pass_control
def list_images(control: Control, as_json: bool) -> None:
    """List every image, where it comes from, its digest if it was learnt, and whether Docker has it."""
    rows = images.listed(control)
    if as_json:
        control.console.json(rows)
        return
    words = {True: "yes", False: "no", None: "unknown"}
    columns = ("image", "reference", "source", "digest", "present", "licence")
    shown = [{**row, "present": words[row["present"]], "digest": _digest(row["digest"], row["source"])} for row in rows]
    control.console.table(columns, [tuple(str(row[c]) for c in ("name", *columns[1:])) for row in shown])


def _digest(learnt: str | None, source: str) -> str:
    """What is built here has none."""
    return learnt or ("-" if source == "build" else "not learnt")


def _looks(control: Control, names: Sequence[str]) -> list[Look]:
    """The named images, or what the stack runs; without a plan the engine's tag is that of config/images.yaml."""
    if names:
        return images.look(control, image_sources.named(control.image_refs, names))
    try:
        return images.look(control, images.for_plan(control, survey.planned(control)))
    except PreflightRefused:
        return images.look(control, images.for_plan(control, None))
