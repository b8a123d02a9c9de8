"""How the coordinators of a simulated council put off writes that nobody waits for, as the real one does.

What comes meanwhile is written along; a crash loses all of it. Knows nothing of rules, and nothing of disks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from council.core.effects import (
    AnnounceDecision,
    AnnounceEscalation,
    DenyCall,
    GrantCall,
    InterruptSeat,
    RaiseAlert,
    RequestRuling,
)
from council.runtime.driver import Driver
from tests.sim import compare
from tests.sim.life import Life, Lingering
from tests.sim.plan import Plan

# So many times its journal's linger a coordinator puts a write off at most, while more comes or nothing is open.
LINGERS_MAX = 10
# Of what is told once it is kept, that which a client, a human, Prime or another seat waits for, or should look at.
WAITED_FOR = (
    AnnounceDecision,
    AnnounceEscalation,
    RaiseAlert,
    RequestRuling,
    InterruptSeat,
    GrantCall,
    DenyCall,
)


class Patience:
    """The part of the world that lets writes linger."""

    plan: Plan
    t: float
    after: Callable[..., None]
    u: Callable[..., float]
    happens: Callable[[str], bool]
    _may_die: Callable[[Life, str, str], None]
    _label: Callable[[Driver], str]
    _write: Callable[[Life, str], Any]

    def _lingers(self, life: Life, label: str) -> bool:
        """Whether what is to be written is put off: nobody waits for it, as the driver sees it."""
        driver = life.driver
        if not self.plan.linger_s or driver.hurries or life.asked:
            return False
        if life.lingering is None:
            if not self.happens(f"linger:{label}"):
                return False
            life.lingering = Lingering(self.t, driver.position)
            self._put_off(life, life.lingering)
        waited_for = [effect for effect in driver.untold() if isinstance(effect, WAITED_FOR)]
        compare.hold("hurry", not waited_for, f"the write lingers that somebody waits for: {waited_for}")
        return True

    def _put_off(self, life: Life, lingering: Lingering) -> None:
        """For a share of the linger, now and then for longer than ever, as by a timer that is late."""
        lingering.position = life.driver.position
        about = life.number, lingering.position
        thinks = any(each.stage != "human" for each in life.driver.state.open.values())
        late = not thinks or self.u("lingers late", *about) < 0.1
        most_s = self.plan.linger_s * (LINGERS_MAX if late else 1)
        self.after(most_s * self.u("lingers", *about), self._lingered, life, lingering)

    def _lingered(self, life: Life, lingering: Lingering) -> None:
        """The write begins, unless more has come that may be written along."""
        if life.gone or life.lingering is not lingering:
            return
        if life.frozen:
            life.lingering = None  # and begins anew once it thaws
            return
        label = self._label(life.driver)
        self._may_die(life, "kill_lingering", label)
        longest_s = LINGERS_MAX * self.plan.linger_s
        if life.driver.position > lingering.position and self.t - lingering.since_s < longest_s:
            self._put_off(life, lingering)
        else:
            self._write(life, label)
