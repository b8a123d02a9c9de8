"""The real coordinator, seats and clients on one event loop in virtual time, over a lossy transport.

Nothing here stands in for the shell itself: only the clock, the network and the minds are made up. Knows
nothing of rules; test_shell.py says what must hold.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from council.agents.messaging.mailbox import Courier, Reply
from council.agents.mind import Case, Observation, Opinion, PlanStream, Ruling, ShownBallot, Stream, Turn
from council.agents.seat.host import SeatHost
from council.agents.seat.remote import RemoteSeat, courier_to
from council.core.events import StreamObserved
from council.core.state import Rules
from council.journal.memory import MemoryJournal
from council.journal.record import Record
from council.protocol.errors import Unreachable
from council.runtime.coordinator import Coordinator
from council.runtime.session import Session
from council.runtime.surroundings import Clock
from tests.patience import VirtualLoop
from tests.sim.plan import name_of, pick, unit

WALL_0 = 1_700_000_000.0
CALL_TIMEOUT_S = 30.0


def in_virtual_time(work: Coroutine[Any, Any, Any]) -> list[str]:
    """Runs ``work`` to its end; gives what nobody caught."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(_end_the_rest())
        loop.close()
    return loop.complaints


async def _end_the_rest() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Weather:
    """The faults of one seed: chance by identity and occurrence, until ``calm_s``."""

    def __init__(self, seed: int, calm_s: float) -> None:
        self.seed, self.calm_s = seed, calm_s
        self._times: Counter[str] = Counter()
        self.rates = {
            what: most * unit(seed, "rate", what)
            for what, most in (("call", 0.1), ("reply", 0.1), ("slow", 0.2), ("crash", 0.02), ("gone", 0.02))
            if unit(seed, "has", what) < 0.6
        }

    def strikes(self, what: str, where: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        self._times[f"{what}/{where}"] += 1
        chance = unit(self.seed, what, where, self._times[f"{what}/{where}"])
        return now_s < self.calm_s and chance < self.rates.get(what, 0.0)

    async def pass_through(self, where: str) -> None:
        self._times[where] += 1
        await asyncio.sleep(0.001 + 0.01 * unit(self.seed, where, self._times[where]))
        if self.strikes("slow", where):
            await asyncio.sleep(5 * unit(self.seed, "how slow", where, self._times[where]) ** 2)


class Whim:
    """A mind that makes things up, the same for the same case; keeps what it said, to be held to it.

    Of what it says aloud ``told`` has every word, by proposal; ``overheard`` is what it was shown of others, and
    ``halts`` why it was halted, with how many interrupts of its work the journal held just then.
    """

    def __init__(self, seed: int, name: str, kept_halts: Callable[[str, str], int]) -> None:
        self.seed, self.name = seed, name
        self.said: dict[str, list[str]] = {}
        self.spoke_s: dict[str, float] = {}
        self.told: dict[str, str] = {}
        self.shown: dict[str, tuple[Turn, ...]] = {}
        self.overheard: list[tuple[str, Stream]] = []
        self.halts: list[tuple[str, str, int]] = []
        self._kept_halts = kept_halts

    def set_plan_stream(self, voice: PlanStream) -> None:
        self.voice = voice

    async def _think_aloud(self, case: Case) -> None:
        """Says how it will go about it, and begins anew for each halt, three times at most."""
        pid = case.proposal_id
        for attempt in range(4):
            halt = self.voice.interrupted(pid)
            words = int(3 + 300 * unit(self.seed, "words", self.name, case.summary, attempt))
            for n in range(words):
                word = f"{self.name}-{attempt}-{n} "
                self.told[pid] = self.told.get(pid, "") + word
                self.voice.publish(pid, "plan", word)
                if n % 50 == 49:
                    await asyncio.sleep(0.1)
                if halt.done():
                    break
            self.voice.end(pid, "plan")
            if attempt == 3 or not (await asyncio.wait([halt], timeout=0.05 * case.time_left_s))[0]:
                return
            self.halts.append((pid, halt.result(), self._kept_halts(pid, self.name)))

    async def observe(self, case: Case, stream: Stream) -> Observation:
        self.overheard.append((case.proposal_id, stream))
        about = (self.name, case.summary, stream.seat, len(stream.text))
        mood = unit(self.seed, "observes", *about)
        if mood < 0.05:
            raise ValueError("I can't tell")
        if mood < 0.1:
            await asyncio.sleep(1e6)
        await asyncio.sleep(0.5 * unit(self.seed, "watches", *about))
        return Observation(unit(self.seed, "halts", case.summary) < 0.5, f"seen by {self.name}")

    async def review(self, case: Case) -> Opinion:
        self.shown[case.proposal_id] = case.history
        about = (self.name, case.summary)
        mood = unit(self.seed, "mood", *about)
        if mood < 0.05:
            raise ValueError("I don't like it")
        if mood < 0.1:
            await asyncio.sleep(1e6)
        if mood < 0.15:
            return "yes"  # type: ignore[return-value]  # nonsense, on purpose
        if unit(self.seed, "aloud", *about) < 0.5:
            await self._think_aloud(case)
        await asyncio.sleep(1.2 * case.time_left_s * unit(self.seed, "thinks", *about) ** 3)
        vote = pick(("yes", "yes", "yes", "no", "no", "abstain"), self.seed, "vote", *about)
        self.spoke_s.setdefault(case.proposal_id, asyncio.get_running_loop().time())
        self.said.setdefault(case.proposal_id, []).append(vote)
        risk = "high" if unit(self.seed, "risk", *about) < 0.1 else "low"
        return Opinion(vote, f"{self.name} says so", 0.8, risk)  # type: ignore[arg-type]  # words of the types

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        await asyncio.sleep(1.5 * case.time_left_s * unit(self.seed, "rules", case.summary) ** 2)
        word = pick(("confirm", "confirm", "reject", "human"), self.seed, "ruling", case.summary)
        return Ruling(word, "so be it")  # type: ignore[arg-type]  # one of the three


class SlowJournal(MemoryJournal):
    """Keeps records after a while."""

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self._weather = weather

    async def append(self, records: Sequence[Record]) -> None:  # type: ignore[override]  # it may be awaited
        await self._weather.pass_through("journal")
        super().append(records)


class LossyTransport:
    """Seats that can be reached now and then, crash, and come back without their memory."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.seats: dict[str, RemoteSeat] = {}
        self.down: set[str] = set()
        for name in shell.names:
            self._launch(name)

    def _launch(self, name: str) -> None:
        shell = self.shell
        host = SeatHost(
            name,
            shell.minds[name],
            shell.keys[name],
            shell.council_id,
            wall=lambda: datetime.fromtimestamp(shell.wall(), UTC),
            uptime=shell.uptime,
            new_id=shell.new_id,
        )
        self.seats[name] = RemoteSeat(host, shell.keys[name], shell.council_id)

    def link(
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> Courier:
        shell = self.shell
        return courier_to(
            seat, shell.keys[seat], shell.council_id, lambda batch: self.exchange(seat, batch), heard, lost
        )

    async def exchange(self, seat: str, batch: list[bytes]) -> Reply:
        weather = self.shell.weather
        await weather.pass_through(f"to {seat}")
        if seat in self.down or weather.strikes("call", seat):
            raise ConnectionError(f"{seat} can't be reached")
        reply = await self.seats[seat].exchange(batch)
        await weather.pass_through(f"from {seat}")
        if weather.strikes("reply", seat):
            raise ConnectionError(f"the reply of {seat} was lost")
        return reply

    async def attend(self, seat: str, boot: int) -> None:
        mine = self.seats[seat]

        async def send(sealed: bytes, name: str) -> None:
            weather = self.shell.weather
            await weather.pass_through(f"beat of {seat}")
            if weather.strikes("crash", seat):
                self.down.add(seat)
                mine.host.close()
            if seat in self.down or weather.strikes("gone", seat):
                raise ConnectionError(f"{seat} is gone")
            assert self.shell.coordinator is not None
            await self.shell.coordinator.hear(sealed)

        await mine.host.attend(boot, send)

    async def revive(self, seat: str) -> None:
        if self.shell.weather.strikes("call", f"revival of {seat}"):
            raise ConnectionError(f"{seat} is not back")
        if seat in self.down:
            self.down.discard(seat)
            self._launch(seat)

    async def close(self) -> None:
        for seat in self.seats.values():
            seat.host.close()


class LossyPort:
    """The coordinator as clients reach it, now and then; a lost reply was done all the same."""

    def __init__(self, shell: Shell, name: str) -> None:
        self._shell, self._name = shell, name

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any) -> Any:
            weather, coordinator = self._shell.weather, self._shell.coordinator
            await weather.pass_through(f"call of {self._name}")
            if method == "exchange" and weather.strikes("call", self._name):
                raise Unreachable("the call was lost")
            result = await getattr(coordinator, method)(*arguments)
            await weather.pass_through(f"answer to {self._name}")
            if method == "exchange" and weather.strikes("reply", self._name):
                raise Unreachable("the answer was lost")
            return result

        return call


class Shell:
    """One seed's council: its parts, all on the running loop."""

    def __init__(self, seed: int, *, seats: int = 3, calm_s: float = 300.0, ttl_s: float = 100.0) -> None:
        self.seed = seed
        self.names = ("lite", "prime", "codemind", "seat3", "seat4")[: max(seats, 2)]
        self.council_id = f"shell.{seed}"
        self.keys = {name: self._key(name) for name in self.names}
        self.minds = {name: Whim(seed, name, self._kept_halts) for name in self.names}
        self.weather = Weather(seed, calm_s)
        self.coordinator: Coordinator | None = None
        self._ids = 0
        self.uptime = asyncio.get_running_loop().time
        self.transport = LossyTransport(self)
        self.journal = SlowJournal(self.weather)
        rules = Rules(
            seats=self.names,
            prime="prime",
            observer="lite",
            escalation_ttl_s=ttl_s,
            lost_at_once=True,
            asks_outcome=True,
            keeps_escalation=True,
        )
        self.rules = rules
        self.coordinator = Coordinator(
            rules,
            self.council_id,
            self.keys,
            self.transport,
            self.journal,
            Clock(uptime=self.uptime, wall=self.wall),
            humans={"carol": self._key("carol")},
        )

    def wall(self) -> float:
        return WALL_0 + self.uptime()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    def _kept_halts(self, pid: str, seat: str) -> int:
        events = [record.event for record in self.journal.records]
        seen = [each for each in events if isinstance(each, StreamObserved) and each.interrupt]
        return sum((each.proposal_id, each.stream) == (pid, seat) for each in seen)

    def _key(self, name: str) -> bytes:
        return name_of(self.seed, "key", name, digits=64).encode()[:32]

    async def session(self, name: str, role: str) -> Session:
        port: Any = LossyPort(self, name)
        session = Session(port, name, role, self._key(name), CALL_TIMEOUT_S, self.council_id)
        await session.open()
        return session
