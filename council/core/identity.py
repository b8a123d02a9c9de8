"""The identity in force: which one a coordinator may start with, and how it changes (rules 7).

``kinds.identity`` has judged before who may change it. The core accepts a change of the identity in force only.
"""

from __future__ import annotations

from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.state import CouncilState, Moment, Rules
from council.protocol.errors import Refused

SHOWN = 12  # characters of a hash, enough to tell identities apart
EARLIER_MAX = 1_000  # identities that a rollback may go back to


def rules_in_force(state: CouncilState, rules: Rules) -> Rules:
    """The rules that a coordinator starts with. Their identity is the one in force, or the one it was changed to.

    If they name no identity, the one in force stays. Raises Refused for any other identity.
    """
    had, given, change = state.rules.identity, rules.identity, state.identity_change
    if not state.epoch or not had.hash:  # a new council, or one whose journal is older than identities in it
        return rules
    if given.hash in ("", had.hash):
        return replace(rules, identity=had)
    agreed = change.after.hash if change is not None else ""
    if given.hash != agreed:
        raise _another(given.hash, had.hash, agreed)
    if had.hash not in state.identity_past.earlier:
        state.identity_past.earlier = (*state.identity_past.earlier, had.hash)[-EARLIER_MAX:]
    state.identity_change = None
    return rules


def _another(given: str, had: str, agreed: str) -> Refused:
    to = f", or {agreed[:SHOWN]}, to which it was changed" if agreed and agreed != had else ""
    return Refused(
        f"the charter's identity is {given[:SHOWN]}, and this council's is {had[:SHOWN]}{to}: an identity changes by "
        "governance alone (rules 7.2). Put the identity back as it was (council identity show --journal prints it), "
        "launch, and have it changed: council identity propose-change FILE",
        code="identity_changed",
        found=given,
        expected=had,
    )


@ev.handles(ev.IdentityChanged)
def changed(state: CouncilState, event: ev.IdentityChanged, now: Moment) -> list[do.Effect]:
    """Keeps an allowed change until the first launch with the new identity. It replaces a change that waits.

    A change to the identity in force withdraws the change that waits.
    """
    change, had = event.change, state.rules.identity.hash
    if change.before != had:
        raise Refused(
            f"the change is of {change.before[:SHOWN]}, and the identity is {had[:SHOWN]} now; propose it anew",
            code="identity_refused",
            found=change.before,
            expected=had,
        )
    state.identity_change = None if change.after.hash == had else change
    state.identity_past.changed_at = now.position
    return [do.AnnounceIdentityChange(change)]
