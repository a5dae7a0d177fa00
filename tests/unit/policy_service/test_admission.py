"""Places for bodies: first come, first served; small ones never wait; who stands still in the way has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from policy.admission import PARKED_BYTES, PROGRESS_BYTES, SMALL_S, STALLED_S, NoRoom, Room, Ticket

MIB = 1 << 20
LONG = 30.0


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that awaits."""

    def started() -> None:
        asyncio.run(asyncio.wait_for(test(), 20))

    started.__name__ = test.__name__
    return started


def now() -> float:
    return 0.0


async def turns() -> None:
    """Let everybody go on who can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def admitted(room: Room, need: int) -> Ticket:
    ticket = room.ticket(0.0)
    await ticket.enlarge(need, now, LONG)
    return ticket


@run
async def test_large_bodies_get_their_place_in_the_order_they_came() -> None:
    room, order = Room(10 * MIB, 100 * MIB), []

    async def upload(name: str, need: int) -> Ticket:
        ticket = await admitted(room, need)
        order.append(name)
        return ticket

    first = await upload("a", 80 * MIB)
    tasks = [asyncio.ensure_future(upload(name, need)) for name, need in (("b", 90 * MIB), ("c", 5 * MIB))]
    await turns()
    assert order == ["a"] and room.waiting == 2, "c would fit, but b came before it"
    first.release()
    await turns()
    assert order == ["a", "b", "c"]
    for task in tasks:
        (await task).release()
    assert (room.reserved, room.small_held, room.parked, room.held) == (0, 0, 0, 0)


@run
async def test_what_a_complete_body_does_not_take_is_free_for_the_next() -> None:
    room = Room(MIB, 100 * MIB)
    first = await admitted(room, 100 * MIB)
    second = asyncio.ensure_future(admitted(room, 60 * MIB))
    await turns()
    first.grow(30 * MIB)
    assert not second.done()
    first.complete()
    await turns()
    assert second.done()
    first.release()
    (await second).release()
    assert room.reserved == 0


@run
async def test_who_leaves_the_queue_frees_it() -> None:
    room = Room(MIB, 100 * MIB)
    first = await admitted(room, 60 * MIB)
    second = asyncio.ensure_future(admitted(room, 90 * MIB))
    third = asyncio.ensure_future(admitted(room, 30 * MIB))
    await turns()
    assert not third.done()
    second.cancel()
    await turns()
    assert third.done() and room.waiting == 0
    first.release()
    (await third).release()
    assert room.reserved == 0


@run
async def test_small_bodies_do_not_wait_and_are_bounded() -> None:
    room = Room(3 * MIB, 100 * MIB)
    await admitted(room, 100 * MIB)
    waiting = asyncio.ensure_future(admitted(room, 100 * MIB))
    await turns()
    small = [room.ticket(0.0) for _ in range(4)]
    for ticket in small[:3]:
        ticket.grow(MIB)
    with pytest.raises(NoRoom):
        small[3].grow(1)
    small[0].release()
    small[3].grow(1)
    waiting.cancel()


@run
async def test_a_body_too_large_for_any_place_is_refused_at_once() -> None:
    with pytest.raises(NoRoom):
        await admitted(Room(MIB, 10 * MIB), 10 * MIB + 1)


@run
async def test_a_wait_has_an_end() -> None:
    room = Room(MIB, 10 * MIB)
    first = await admitted(room, 10 * MIB)
    late = room.ticket(0.0)
    late.grow(1000)
    with pytest.raises(NoRoom):
        await late.enlarge(10 * MIB, now, 0.01)
    assert room.waiting == 0
    late.release()
    first.release()
    assert (room.reserved, room.small_held, room.parked) == (0, 0, 0)


@run
async def test_what_waiting_bodies_brought_along_is_bounded_and_no_small_bodys_place() -> None:
    room = Room(MIB, 10 * MIB)
    await admitted(room, 10 * MIB)
    waiting = []
    for _ in range(PARKED_BYTES // MIB):
        ticket = room.ticket(0.0)
        ticket.grow(MIB)
        waiting.append(asyncio.ensure_future(ticket.enlarge(5 * MIB, now, LONG)))
        await turns()
    assert room.small_held == 0
    with pytest.raises(NoRoom):
        ticket = room.ticket(0.0)
        ticket.grow(MIB)
        await ticket.enlarge(5 * MIB, now, LONG)
    for task in waiting:
        task.cancel()


@run
async def test_an_upload_that_stands_still_goes_only_when_others_wait() -> None:
    room = Room(MIB, 10 * MIB)
    slow = await admitted(room, 10 * MIB)
    assert room.sweep(10 * STALLED_S) == 0
    waiting = asyncio.ensure_future(admitted(room, 5 * MIB))
    await turns()
    slow.marked_at = 0.0
    assert room.sweep(STALLED_S - 1) == 0
    assert room.sweep(STALLED_S) == 1 and slow.evicted.done()
    slow.release()
    await turns()
    assert waiting.done()


@run
async def test_an_upload_that_moves_stays_and_a_complete_one_too() -> None:
    room = Room(MIB, 10 * MIB)
    moving = await admitted(room, 10 * MIB)
    waiting = asyncio.ensure_future(admitted(room, 10 * MIB))
    await turns()
    for tick in range(1, 6):
        moving.grow(PROGRESS_BYTES)
        assert room.sweep(tick * STALLED_S) == 0
    moving.complete()
    assert room.sweep(100 * STALLED_S) == 0
    waiting.cancel()


@run
async def test_small_uploads_that_trickle_go_once_the_place_gets_narrow() -> None:
    room = Room(2 * MIB, 10 * MIB)
    slow = room.ticket(0.0)
    slow.grow(MIB)
    assert room.sweep(SMALL_S + 1) == 0
    room.ticket(SMALL_S).grow(1000)
    assert room.sweep(SMALL_S + 1) == 1 and slow.evicted.done()
