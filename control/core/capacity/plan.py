"""The capacity plan of a machine with GPUs, or an error that shows the sum."""

from __future__ import annotations

from dataclasses import dataclass

from control.core import wiring
from control.core.capacity import refusals, release
from control.core.capacity.case import Case, case
from control.core.capacity.choose import Choice, choose
from control.core.capacity.groups import Group, crossings
from control.core.capacity.layout import Attempt, attempts, tensor_parallels
from control.core.capacity.memory import Budget, held, seats_fill_up_to
from control.core.capacity.result import GpuPlan, GpuReplica, Note
from control.core.facts import Facts
from control.core.gpus import Inventory
from control.core.serve import command
from control.core.settings import Settings


def plan_gpus(settings: Settings, facts: Facts, inventory: Inventory) -> GpuPlan:
    """Decide replicas and their GPUs. Settings that cannot be are UsageError, a host that cannot PreflightRefused."""
    engine = settings.engine
    model = facts.model(settings.weights.model)
    wanted = case(engine, model, release.find_release(engine, model, facts.engines), facts.engines)
    options = tensor_parallels(engine, model)
    command(settings, wanted, options[0])  # engine.extra_args are judged before the host is
    choice = _usable(settings, facts, inventory)
    driver = release.fit_driver(engine, wanted.release, facts.engines, inventory)
    best = attempts(wanted, choice.candidates, options, inventory.links)[0]
    if best.chosen is None or not best.groups:
        raise refusals.does_not_fit(wanted, best, choice)
    replicas = _replicas(engine.replicas, best, best.chosen.tensor_parallel, inventory)
    notes = (*_machine(inventory, choice), *driver.notes, *_against(wanted, best, best.chosen))
    notes += (*_links(replicas, inventory, best), *_other_kinds(choice, best))
    return _plan(settings, _Decision(wanted, inventory, choice, driver, best, best.chosen, replicas, notes))


def _usable(settings: Settings, facts: Facts, inventory: Inventory) -> Choice:
    refused = refusals.nothing_to_ask(inventory)
    if refused:
        raise refused
    model = facts.model(settings.weights.model)
    choice = choose(inventory, facts, model, settings.engine)
    if not choice.candidates:
        raise refusals.none_can_serve(choice, model.name)
    return choice


@dataclass(frozen=True)
class _Decision:
    """What was decided, step by step."""

    wanted: Case
    inventory: Inventory
    choice: Choice
    driver: release.DriverFit
    best: Attempt
    budget: Budget
    replicas: tuple[GpuReplica, ...]
    notes: tuple[Note, ...]


def _plan(settings: Settings, made: _Decision) -> GpuPlan:
    size, compatibility = made.budget.tensor_parallel, made.driver.compatibility
    taken = {id(member) for replica in made.replicas for member in replica.members}
    return GpuPlan(
        case=made.wanted,
        inventory=made.inventory,
        build=made.driver.build,
        cuda_compatibility=compatibility,
        kind=made.best.kind,
        product=_product_id(made.best),
        tensor_parallel=size,
        replicas=made.replicas,
        budget=made.budget,
        tried=made.best.tried,
        held=held(made.wanted, made.budget),
        seats_fill_up_to=seats_fill_up_to(made.wanted, made.budget),
        spare=tuple(member for member in made.choice.candidates if id(member) not in taken),
        unusable=made.choice.unusable,
        notes=made.notes,
        serve=command(settings, made.wanted, size, compatibility),
    )


def _product_id(best: Attempt) -> str | None:
    product = best.candidates[0].product
    return product.id if product else None


def _against(wanted: Case, best: Attempt, one: Budget) -> tuple[Note, ...]:
    """What is known against this choice, and what is known of it at all."""
    product, size = _product_id(best), one.tensor_parallel
    found = (*release.faults(wanted, product, size), *release.measured(wanted))
    return (*found, release.evidence(wanted, product, size))


def _replicas(asked: int | None, best: Attempt, size: int, inventory: Inventory) -> tuple[GpuReplica, ...]:
    if asked is not None and asked > len(best.groups):
        raise refusals.too_many_replicas(asked, best, size)
    chosen: tuple[Group, ...] = best.groups[: asked or wiring.MAX_REPLICAS]
    return tuple(GpuReplica(slot, group, crossings(group, inventory.links)) for slot, group in enumerate(chosen))


def _machine(inventory: Inventory, choice: Choice) -> list[Note]:
    """What is odd about the machine itself."""
    notes = [Note("gpu-lost", "warn", line, "Reboot; its slot stays empty until then.") for line in inventory.lost]
    seen = len(inventory.gpus or ())
    if inventory.expected is not None and seen < inventory.expected:
        text = f"This machine should have {inventory.expected} GPUs, {seen} are there"
        notes.append(Note("gpu-missing", "warn", text, "Find the missing one before the start, or accept fewer."))
    notes += [Note("gpu-warning", "warn", line) for line in inventory.warnings]
    blind = [one.gpu.label for one in choice.candidates if one.gpu.mig is None]
    if blind:
        text = f"Whether MIG is on could not be learnt: {', '.join(blind)}"
        notes.append(Note("mig-unknown", "warn", text, "`nvidia-smi -q -d MIG` as root shows it."))
    unseen = [one.gpu.label for one in choice.candidates if one.gpu.processes is None]
    if unseen:
        text = f"Which processes use them could not be learnt; by their memory they are idle: {', '.join(unseen)}"
        notes.append(Note("processes-unknown", "warn", text, "Run as root to see other users' processes."))
    return notes


def _links(replicas: tuple[GpuReplica, ...], inventory: Inventory, best: Attempt) -> list[Note]:
    """TP talks after every layer: a pair without NVLink slows its whole replica down."""
    if all(len(replica.members) == 1 for replica in replicas):
        return []
    product = best.candidates[0].product
    if inventory.links is None and (product is None or product.nvlink != "switch"):
        text = "How the GPUs are linked could not be learnt; tensor parallel needs NVLink to be fast"
        return [Note("links-unknown", "warn", text, "`nvidia-smi topo -m` shows it.")]
    return [
        Note(
            "no-nvlink",
            "warn",
            f"engine-{replica.slot}: tensor parallel goes over the CPU link ({'; '.join(replica.crossings)})",
            "Expect much slower answers; GPUs that share NVLink are better.",
        )
        for replica in replicas
        if replica.crossings
    ]


def _other_kinds(choice: Choice, best: Attempt) -> list[Note]:
    others = dict.fromkeys(member.kind for member in choice.candidates if member.kind != best.kind)
    if not others:
        return []
    text = f"Replicas are of one kind, {best.kind}; left aside: {', '.join(others)}"
    return [Note("other-kind", "info", text, "Name the other GPUs in engine.gpu_uuids to use them instead.")]
