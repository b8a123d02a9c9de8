"""``council rfc``: an RFC in a git repository is proposed, reviewed by the council, and merged (rules 7.3)."""

from __future__ import annotations

import json as jsons
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.decide import submit
from council.cli.options import (
    Address,
    Config,
    Inline,
    Json,
    Launch,
    Name,
    Risk,
    RiskOption,
    Timeout,
    WaitForHuman,
)
from council.cli.reach import Where
from council.cli.record.sources import Name as JournalName
from council.cli.record.sources import reading
from council.cli.record.store import Url
from council.cli.report import DONE, REJECTED, UNDECIDED, Report, UsageFault, judged
from council.kinds.text import line
from council.protocol.errors import Refused

if TYPE_CHECKING:
    from council.cli.decide.rfc_files import Rfc
    from council.cli.record.sources import HistorySource
    from council.core.state import Decision

app = typer.Typer(
    help="Propose, review and merge RFCs in a git repository, as the council decides.", no_args_is_help=True
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The RFC: a Markdown file with front matter.")]
REVIEWERS = ("prime", "lite")  # as in the rules of identity
NO_JOURNAL = (
    "council rfc merge reads the decision in the journal, which --inline and --launch keep only in a store that the "
    'settings name: give --config FILE with store = "council.db", or use a council that is up'
)
_ID = re.compile("[0-9a-f]{8,32}")


@app.command()
def propose(file: File, json: Json = False) -> int:
    """Check an RFC, and set its status from draft to proposed.

    The file begins with front matter: title, status and author. Shows the sha256 of the bytes that council rfc review
    puts to the vote, and the difference from the merged version. Needs no council.
    """
    from council.cli.decide import rfc_files as files

    rfc, _ = files.read(file, propose=True)
    if rfc.fields["status"] != files.DRAFT:
        raise UsageFault(f"{rfc.name} is proposed already; next: council rfc review {file}")
    submit.check(rfc.summary, rfc.body, {"risk": "low", "wait_for": "all"})
    files.write(rfc.path, rfc.data)
    before = rfc.merged.data
    document = {
        "file": rfc.name,
        "title": rfc.fields["title"],
        "status": files.PROPOSED,
        "author": rfc.fields["author"],
        "sha256": rfc.sha256,
        "merged": None if before is None else {"file": rfc.merged.path, "sha256": files.digest(before)},
        "diff": rfc.diff,
    }
    difference = "nothing is merged under this name yet" if before is None else rfc.diff
    shown = f"{rfc.name} is proposed, sha256 {rfc.sha256}\n{difference}\nnext: council rfc review {file}"
    return Report(as_json=json).result({"rfc": document}, shown)


@app.command()
def review(
    file: File,
    risk: RiskOption = Risk.low,
    timeout: Timeout = None,
    wait_for_human: WaitForHuman = False,
    name: Name = None,
    address: Address = None,
    inline: Inline = False,
    launch: Launch = False,
    config: Config = None,
    json: Json = False,
) -> int:
    """Have Prime, Lite and the other seats vote on a proposed RFC.

    The proposal has the file's exact text, its sha256, and the difference from the merged version. The decision waits
    for every seat, and is noted in rfcs/.decisions/ under the sha256. Exits 1 if the RFC is rejected, and 3 if a
    human must decide.

    No settings are read from the repository unless --config names them.
    """
    from council.cli.decide import rfc_files as files
    from council.config.settings import MEMORY

    rfc, _ = files.read(file)
    if rfc.fields["status"] != files.PROPOSED:
        raise UsageFault(f"{rfc.name} is a draft; first: council rfc propose {file}")
    if rfc.merged.data == rfc.data:
        raise UsageFault(f"{rfc.name} is merged already, with the same bytes, as {rfc.merged.path}")
    report = Report(as_json=json)
    if _noted(_note_of(rfc), "outcome") == "rejected":
        see = f"see council show {_noted(_note_of(rfc), 'proposal_id')}"
        why = f"the council has rejected these bytes (sha256 {rfc.sha256}): change them, then review; {see}"
        return report.error(_refused(rfc, why), REJECTED)
    where = Where(config and config.absolute(), name, address, inline, launch, trusts_folder=False)
    if (inline or launch) and where.loaded().config.store in (None, MEMORY):
        raise UsageFault(NO_JOURNAL)

    def record(decision: Decision, council: str) -> dict[str, Any]:
        noted = {
            "file": rfc.name,
            "sha256": rfc.sha256,
            "council": council,
            "proposal_id": decision.proposal_id,
            "position": decision.position,
            "outcome": decision.outcome,
            "standing": decision.standing,
            "reviews": {each.seat: {"vote": each.vote, "reason": each.reason} for each in decision.ballots},
        }
        files.write(_note_of(rfc), (jsons.dumps(noted, indent=2, ensure_ascii=False) + "\n").encode())
        for seat in _unheard(decision):
            report.note(f"{seat} has cast no ballot, so council rfc merge will refuse: review it again")
        return {"rfc": noted}

    details: dict[str, Any] = {"risk": str(risk), "timeout_s": timeout, "wait_for": "all"}
    return submit.decide(
        where, report, "error", rfc.summary, rfc.body, details, wait_for_human, record=record
    )


@app.command()
@judged
def merge(
    file: File,
    name: JournalName = None,
    address: Address = None,
    url: Url = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Merge an RFC that the council has approved, byte for byte.

    Looks for the proposal in the council's journal, and compares it with the file: an approved decision on exactly
    these bytes, with ballots of Prime and Lite. Then commits the file as rfcs/merged/NNNN-slug.md, without running
    hooks. Exits 1 if the merge is refused, and 3 if the RFC waits for a human.

    No settings are read from the repository unless --config names them.
    """
    from council.cli.decide import rfc_files as files

    report = Report(as_json=json)
    rfc, git = files.read(file)
    where = Where(config and config.absolute(), name, address, trusts_folder=False)
    try:
        if rfc.merged.data == rfc.data:
            raise _refused(rfc, f"these bytes are merged already, as {rfc.merged.path}")
        proposal_id = _proposal_id(rfc)
        with reading(where, url, report) as source:
            decision = _approved(source, rfc, proposal_id)
        if why := files.unclean(rfc, git):
            raise _refused(rfc, why)
    except Refused as refusal:
        if refusal.code not in ("rfc_refused", "rfc_undecided"):
            raise
        return report.error(refusal, UNDECIDED if refusal.code == "rfc_undecided" else REJECTED)
    facts = f"Council-Proposal: {proposal_id}\nCouncil-Position: {decision.position}\nSHA256: {rfc.sha256}\n"
    commit, removed = files.merge(rfc, git, f"Merge {rfc.summary}\n\n{decision}\n\n{facts}")
    if not removed:
        report.note(f"{rfc.name} changed during the merge: it is kept, and the voted bytes are merged")
    document = {"file": rfc.merged.path, "sha256": rfc.sha256, "commit": commit, "proposal_id": proposal_id}
    return report.result({"merged": document}, f"merged as {rfc.merged.path} in commit {commit[:10]}", DONE)


def _refused(rfc: Rfc, why: str, **facts: Any) -> Refused:
    return Refused(f"{rfc.name} is not merged: {why}", code="rfc_refused", sha256=rfc.sha256, **facts)


def _note_of(rfc: Rfc) -> Path:
    """The note of the review of these bytes. It only says where to look in the journal."""
    from council.cli.decide.rfc_files import DECISIONS

    return rfc.root / DECISIONS / f"{rfc.sha256}.json"


def _proposal_id(rfc: Rfc) -> str:
    """The proposal that the note of these bytes names. Raises Refused, with the digests that were reviewed."""
    note = _note_of(rfc)
    if not note.is_file():
        reviewed = [
            each.stem for each in sorted(note.parent.glob("*.json")) if _noted(each, "file") == rfc.name
        ]
        if not reviewed:
            raise _refused(rfc, f"it was not reviewed (sha256 {rfc.sha256}); first: council rfc review FILE")
        why = f"the file has sha256 {rfc.sha256}, and the council reviewed {', '.join(reviewed)}: it has changed"
        raise _refused(rfc, f"{why}; have it reviewed again", reviewed=reviewed)
    found = _noted(note, "proposal_id")
    if _ID.fullmatch(found) is None:
        raise _refused(rfc, f"{note} names no proposal: have it reviewed again")
    return found


def _noted(note: Path, field: str) -> str:
    try:
        return str(jsons.loads(note.read_bytes())[field])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""


def _unheard(decision: Decision) -> list[str]:
    return [seat for seat in REVIEWERS if seat not in {each.seat for each in decision.ballots}]


def _approved(source: HistorySource, rfc: Rfc, proposal_id: str) -> Decision:
    """The decision in the journal that approves these bytes. Raises Refused."""
    from council.cli.record.story import damaged, story_of

    try:
        story = story_of(source, proposal_id)
    except Refused as error:
        raise _refused(rfc, f"the journal of {source.name} has no proposal {proposal_id}") from error
    see = f"see council show {proposal_id}"
    if any(damaged(entry) for entry in story.entries):
        raise _refused(rfc, f"a record of {proposal_id} is damaged; {see}")
    sent = None if story.proposal is None else story.proposal.envelope
    if story.proposal_id != proposal_id or sent is None:
        raise _refused(rfc, f"the journal of {source.name} has no proposal {proposal_id} in full")
    content: Any = sent.content
    if content.body != rfc.body or content.action is not None:
        voted = re.search(r"^sha256: ([0-9a-f]{64})$", content.body, re.MULTILINE)
        about = f"sha256 {voted[1]}" if voted else "something else"
        same = (
            "the merged version or the file's place has changed since"
            if voted and voted[1] == rfc.sha256
            else ""
        )
        why = same or f"the file has sha256 {rfc.sha256}, and proposal {proposal_id} is about {about}"
        raise _refused(rfc, f"{why}; have it reviewed again", reviewed=[voted[1]] if voted else [])
    decision = story.decision
    if decision is None or decision.outcome == "deferred":
        why = f"{rfc.name} is not merged: proposal {proposal_id} is not decided; {see}"
        raise Refused(why, code="rfc_undecided", sha256=rfc.sha256)
    if decision.outcome != "approved":
        reasons = "; ".join(f"{each.seat}: {line(each.reason, 200)}" for each in decision.ballots)
        raise _refused(rfc, f"the council has not approved it ({decision.outcome}): {reasons}; {see}")
    if content.wait_for != "all" or (unheard := _unheard(decision)):
        missing = (
            "the vote did not wait for all"
            if content.wait_for != "all"
            else f"no ballot of {', '.join(unheard)}"
        )
        raise _refused(rfc, f"Prime and Lite must review it: {missing}; have it reviewed again")
    return decision
