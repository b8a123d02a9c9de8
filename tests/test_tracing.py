"""One trace for a proposal: across its client, the coordinator, the seats and what their models are asked."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from council import Council, CouncilPool
from council.agents.messaging import spans as names
from council.agents.messaging.span_recorder import SpanRecorder
from council.agents.mind import Case, Observation, Opinion, PlanStream, Stream
from council.config.settings import SeatConfig
from council.protocol.errors import ConfigError, Refused
from council.protocol.metadata import Metadata
from council.telemetry import tracing
from tests.collector import Collector
from tests.logged import capture_logs
from tests.models.stub import Stub, ballot, plan, refuse, ruling, says
from tests.patience import HANG_S, until

SEATS = ("prime", "lite", "codemind")
SECRET = "the-bucket-of-ada"
_MEMORY = InMemorySpanExporter()


@pytest.fixture
def told() -> Iterator[InMemorySpanExporter]:
    """What the process's own provider was told; a process has one, for good."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_MEMORY))
        trace.set_tracer_provider(provider)
    _MEMORY.clear()
    yield _MEMORY
    _MEMORY.clear()


@contextmanager
def agents_span(name: str = "agent") -> Iterator[trace.Span]:
    """A span of the program that uses the council."""
    with trace.get_tracer("program").start_as_current_span(name) as span:
        yield span


def found(told: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The spans by name; of those of seats by name and seat."""
    by_name = {}
    for span in told.get_finished_spans():
        seat = (span.attributes or {}).get(names.SEAT)
        by_name[f"{span.name} {seat}" if seat else span.name] = span
    return by_name


def of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def agrees(case: Case) -> Opinion:
    return Opinion.yes("agreed", confidence=0.9)


async def agrees_at_once(case: Case) -> Opinion:
    return Opinion.yes("agreed", confidence=0.9)


def seats(**minds: Any) -> list[SeatConfig]:
    given = dict.fromkeys(SEATS, agrees_at_once) | minds
    return [SeatConfig(name=name, mind=mind) for name, mind in given.items()]


# The whole tree


def test_a_proposal_is_one_trace_from_the_agent_to_its_models(told: InMemorySpanExporter) -> None:
    """Models plan, vote and rule; one has to be asked twice. Nothing that anybody says stands in a span."""
    scripts = {
        "prime": [says(plan()), says(ballot("yes", SECRET)), says(ruling("confirm", reason=SECRET))],
        "lite": [refuse(429, SECRET, retry_after="0"), says(plan()), says(ballot("no", SECRET))],
        "codemind": [says(plan()), says(ballot("yes", SECRET, confidence=0.25))],
    }
    with Stub(scripts) as stub:
        told_of = {
            name: {"model": name, "base_url": stub.base_url, "temperature": 0.5, "stages": "two"}
            for name in SEATS
        }
        running = Council.inline(seats=told_of, observer="none", traces="global")
        with running as council, agents_span() as around:
            decision = council.propose(f"Delete {SECRET}", SECRET, wait_for="all", timeout_s=HANG_S)
    assert decision.outcome == "approved"
    spans = told.get_finished_spans()
    by_name = found(told)
    assert {of(span) for span in spans} == {f"{around.get_span_context().trace_id:032x}"}
    propose = by_name["council.propose"]
    assert parent_of(propose) == around.get_span_context().span_id
    assert about(propose) == {names.PROPOSAL: decision.proposal_id, names.OUTCOME: "approved"}
    for name in ("council.decide", "council.rule prime", *(f"council.review {seat}" for seat in SEATS)):
        assert parent_of(by_name[name]) == id_of(propose), name
    plans = [span for span in spans if span.name == "council.plan"]
    assert {parent_of(span) for span in plans} == {id_of(by_name[f"council.review {seat}"]) for seat in SEATS}
    lites = [span for span in spans if span.name == "chat lite"]
    assert [about(span).get("error.type") for span in lites] == ["429", None, None]
    assert len({parent_of(span) for span in lites[:2]}) == 1  # both within the plan
    assert parent_of(lites[2]) == id_of(by_name["council.review lite"])
    chats = [span for span in spans if span.name.startswith("chat ")]
    assert len(chats) == len(stub.requests) == 8
    assert about(lites[2]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "lite",
        "gen_ai.request.max_tokens": 2_048,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "server.address": "127.0.0.1",
        "server.port": int(stub.base_url.rpartition(":")[2].removesuffix("/v1")),
        names.TASK: "ballot",
    }
    assert lites[2].kind is trace.SpanKind.CLIENT
    assert lites[0].status.status_code is trace.StatusCode.ERROR
    assert lites[0].status.description is None  # which would quote the server
    shown = " ".join(span.to_json() for span in spans)
    assert SECRET not in shown
    # rules 2.3: nor is a model shown the trace, in its prompt or on the way there.
    id = f"{around.get_span_context().trace_id:032x}"
    assert not [call for call in stub.requests if id in str(call.body) or id in str(call.headers)]


def test_the_decisions_span_tells_what_was_announced(told: InMemorySpanExporter) -> None:
    def refuses(case: Case) -> Opinion:
        return Opinion.no(SECRET, risk_level="high")

    def raises(case: Case) -> Opinion:
        raise RuntimeError(SECRET)

    before_s = time.time()
    with Council.inline(
        seats=seats(lite=refuses, codemind=raises), traces="global", humans={"ada": "kept"}
    ) as council:
        waiting = council.propose("Delete it", timeout_s=HANG_S)
        assert waiting.escalation_id is not None
        assert "council.decide" not in found(told)  # what waits for a human is not decided
        decision = council.answer(waiting.escalation_id, approve=False, human="ada")
    span = found(told)["council.decide"]
    assert about(span) == {
        names.COUNCIL: "council",
        names.PROPOSAL: decision.proposal_id,
        names.OUTCOME: "rejected",
        names.DECIDED_BY: "human",
        names.DEGRADED: decision.degraded,
        names.QUORUM: decision.quorum,
        names.MISSING: ("codemind",),
    }
    events = {event.name: dict(event.attributes or {}) for event in span.events}
    assert events["loss"] == {names.SEAT: "prime", names.TASK: "ruling"}
    assert set(events) == {"ballot", "loss", "to_prime", "to_human"}
    assert span.start_time is not None
    assert span.end_time is not None
    assert before_s <= span.start_time / 1e9 <= span.end_time / 1e9 <= time.time()
    assert all(span.start_time <= event.timestamp <= span.end_time for event in span.events)
    failed = found(told)["council.review codemind"]
    assert about(failed)[names.ERROR_TYPE] == "RuntimeError"
    assert SECRET not in " ".join(each.to_json() for each in told.get_finished_spans())


def test_a_plain_minds_own_spans_belong_to_its_seats_work(told: InMemorySpanExporter) -> None:
    """It runs on a thread of its own, and its libraries may make spans too. Mutation: a thread without context."""

    def looks_it_up(case: Case) -> Opinion:
        with agents_span("look it up"):
            return agrees(case)

    with Council.inline(seats=seats(lite=looks_it_up), traces="global") as council:
        council.propose("Delete it", wait_for="all")
    by_name = found(told)
    assert parent_of(by_name["look it up"]) == id_of(by_name["council.review lite"])


class Speaks:
    """Says aloud what it plans, and votes once it was looked at."""

    def __init__(self, looked: threading.Event) -> None:
        self._looked = looked

    def set_plan_stream(self, voice: PlanStream) -> None:
        self._voice = voice

    async def review(self, case: Case) -> Opinion:
        self._voice.publish(case.proposal_id, "plan", "I look at it.")
        self._voice.end(case.proposal_id, "plan")
        await asyncio.to_thread(self._looked.wait, 20)
        return agrees(case)


class Observes:
    def __init__(self, looked: threading.Event) -> None:
        self._looked = looked

    async def review(self, case: Case) -> Opinion:
        return agrees(case)

    async def observe(self, case: Case, stream: Stream) -> Observation:
        self._looked.set()
        return Observation(interrupt=False)


def test_a_look_at_anothers_work_is_a_span_of_the_observers(told: InMemorySpanExporter) -> None:
    looked = threading.Event()
    minds = seats(prime=Speaks(looked), lite=Observes(looked))
    with Council.inline(seats=minds, traces="global") as council, agents_span() as around:
        council.propose("Delete it", wait_for="all")
    by_name = found(told)
    assert looked.is_set()
    assert parent_of(by_name["council.observe lite"]) == id_of(by_name["council.propose"])
    assert of(by_name["council.observe lite"]) == f"{around.get_span_context().trace_id:032x}"
    assert "observation" in {event.name for event in by_name["council.decide"].events}


# Clients


def test_each_caller_has_its_own_trace_also_on_the_councils_loop(told: InMemorySpanExporter) -> None:
    async def one(council: Council, number: int) -> str:
        with agents_span(f"agent {number}") as span:
            await council.aio.propose(f"Delete {number}")
            return f"{span.get_span_context().trace_id:032x}"

    async def all_at_once(council: Council) -> list[str]:
        return await asyncio.gather(*(one(council, number) for number in range(5)))

    with Council.inline(seats=seats(), traces="global") as council:
        with agents_span("others"):
            traces = asyncio.run(all_at_once(council))
        with agents_span("many") as many:
            council.propose_many(["a", council.draft("b")])
    by_trace: dict[str, list[str]] = {}
    for span in told.get_finished_spans():
        by_trace.setdefault(of(span), []).append(span.name)
    assert len(by_trace) == 2
    assert len(set(traces)) == 1
    assert sorted(by_trace[traces[0]]).count("council.propose") == 5
    own = by_trace[f"{many.get_span_context().trace_id:032x}"]
    assert (own.count("council.propose"), own.count("council.decide")) == (2, 2)
    proposes = [span for span in told.get_finished_spans() if span.name == "council.propose"]
    agents = {id_of(span) for span in told.get_finished_spans() if span.name.startswith("agent ")}
    assert {parent_of(span) for span in proposes if of(span) == traces[0]} == agents


def test_a_draft_that_is_proposed_again_is_one_proposal_in_one_trace(told: InMemorySpanExporter) -> None:
    """rules 1.12: its bytes are what they were. Mutation: a context that is put in when it is proposed."""
    with Council.inline(seats=seats(), traces="global") as council:
        with agents_span("drafts") as drafts:
            draft = council.draft("Delete it")
        with agents_span("first"):
            first = council.propose(draft)
        with agents_span("again"):
            again = council.propose(draft)
        with pytest.raises(Refused):
            council.propose(draft.model_copy(update={"metadata": None}))
    assert first.position == again.position
    own = [
        span for span in told.get_finished_spans() if of(span) == f"{drafts.get_span_context().trace_id:032x}"
    ]
    assert [span.name for span in own].count("council.propose") == 2
    assert [span.name for span in own].count("council.decide") == 1


def test_a_proposal_that_was_sent_in_no_span_is_one_trace_all_the_same(told: InMemorySpanExporter) -> None:
    with Council.inline(seats=seats(), traces="global") as council:
        draft = council.draft("Delete it")
        assert draft.metadata is None
        council.propose(draft, wait_for_human=False)
    spans = told.get_finished_spans()
    assert {span.name for span in spans} == {"council.propose", "council.review", "council.decide"}
    assert len({of(span) for span in spans}) == 1


def test_a_pool_draws_its_proposals_into_the_callers_trace(told: InMemorySpanExporter) -> None:
    with CouncilPool.inline(2, seats=seats(), traces="global") as pool, agents_span() as around:
        pool.propose_many([f"Delete {number}" for number in range(6)])
    assert {of(span) for span in told.get_finished_spans()} == {f"{around.get_span_context().trace_id:032x}"}


def test_a_trace_that_begins_with_a_proposal_is_sampled_as_any_other() -> None:
    """Each process decides by itself, and all alike."""
    sampler = ParentBased(TraceIdRatioBased(0.5))
    made = [SpanRecorder(TracerProvider(sampler=sampler).get_tracer("x"), "c.1", sampler) for _ in range(2)]
    ids = [f"{number:016x}" for number in range(200)]
    flags = [
        [trace.get_current_span(each.parent(id, None)).get_span_context() for id in ids] for each in made
    ]
    assert flags[0] == flags[1]
    assert 50 < sum(context.trace_flags.sampled for context in flags[0]) < 150
    other = SpanRecorder(made[0].tracer, "c.2", sampler).parent(ids[0], None)
    assert trace.get_current_span(other).get_span_context().trace_id != flags[0][0].trace_id


def test_a_callers_decision_not_to_sample_holds_everywhere(told: InMemorySpanExporter) -> None:
    unsampled = trace.NonRecordingSpan(trace.SpanContext(0xABC, 0xDEF, is_remote=False))
    with Council.inline(seats=seats(), traces="global") as council, trace.use_span(unsampled):
        council.propose("Delete it", wait_for="all")
    assert told.get_finished_spans() == ()


def test_a_state_that_nobody_could_send_costs_no_proposal(told: InMemorySpanExporter) -> None:
    state = trace.TraceState([(f"key{number}", "x" * 100) for number in range(10)])
    flags = trace.TraceFlags(1)
    long = trace.NonRecordingSpan(trace.SpanContext(0xABC, 0xDEF, False, flags, state))
    with Council.inline(seats=seats(), traces="global") as council:
        with trace.use_span(long):
            draft = council.draft("Delete it")
        short = trace.SpanContext(0xABC, 0xDEF, False, flags, trace.TraceState([("vendor", "1")]))
        with trace.use_span(trace.NonRecordingSpan(short)):
            with_state = council.draft("Delete it")
    parent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert draft.metadata == Metadata(traceparent=parent)
    assert with_state.metadata == Metadata(traceparent=parent, tracestate="vendor=1")


# What stays when a coordinator ends


def test_what_is_open_keeps_its_trace_over_a_restart(told: InMemorySpanExporter, tmp_path: Path) -> None:
    def asks(case: Case) -> Opinion:
        return Opinion.yes("?", confidence=0.1)

    settings: dict[str, Any] = {
        "store": str(tmp_path / "journal.db"),
        "traces": "global",
        "humans": {"ada": "kept"},
    }
    with agents_span() as around, Council.inline(seats=seats(lite=asks), **settings) as council:
        waiting = council.propose("Delete it", wait_for="all")
    assert waiting.escalation_id is not None
    told.clear()
    with Council.inline(seats=seats(lite=asks), **settings) as council:
        council.answer(waiting.escalation_id, approve=True, human="ada")
    span = found(told)["council.decide"]
    assert of(span) == f"{around.get_span_context().trace_id:032x}"
    assert about(span)[names.DECIDED_BY] == "human"


# Without the setting


OFF = """
import sys
from council import Council
with Council.inline(seats={seat: {"mind": "tests.ray.minds:agree"} for seat in ("prime", "lite", "codemind")}) as council:
    assert council.propose("Delete it").outcome == "approved"
sys.exit(str([name for name in sys.modules if name.startswith("opentelemetry")] or ""))
"""  # noqa: E501 - read by a process


def test_without_the_setting_nothing_of_it_is_loaded() -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", OFF], cwd=root, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.stderr.strip() == ""


def test_without_the_setting_a_span_of_the_callers_is_not_carried(told: InMemorySpanExporter) -> None:
    with Council.inline(seats=seats()) as council, agents_span():
        assert council.draft("x").metadata is None
        council.propose("Delete it", wait_for="all")
    assert {span.name for span in told.get_finished_spans()} == {"agent"}


# The names


def test_the_names_of_models_calls_are_those_of_the_conventions() -> None:
    """Of the release that is installed; where one of them is renamed, this tells."""
    modules = (gen_ai_attributes, server_attributes, error_attributes)
    known = {value for module in modules for name, value in vars(module).items() if name.isupper()}
    ours = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    theirs = {value for value in ours if value.partition(".")[0] in ("gen_ai", "server", "error")}
    assert len(theirs) == 13
    assert theirs <= known


# By OTLP


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with Collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        yield running


def test_a_collector_is_sent_all_at_the_latest_when_the_council_closes(collector: Collector) -> None:
    with Council.inline(name="archive", seats=seats(), traces="otlp") as council:
        decision = council.propose("Delete it", wait_for="all")
    names_sent = sorted(each.name for each in collector.spans)
    assert names_sent == ["council.decide", "council.propose", *["council.review"] * 3]
    assert len({each.trace for each in collector.spans}) == 1
    assert {each.resource["service.name"] for each in collector.spans} == {"council"}
    assert {each.resource["service.instance.id"] for each in collector.spans} == {"archive/inline"}
    (decide,) = [each for each in collector.spans if each.name == "council.decide"]
    assert decide.attributes[names.PROPOSAL] == decision.proposal_id


def test_a_mind_tells_its_span_what_it_likes_and_all_spans_are_sent(collector: Collector) -> None:
    """Whatever OpenTelemetry takes: bytes here, which the council's own spans never hold."""

    async def tells(case: Case) -> Opinion:
        trace.get_current_span().set_attribute("mind.digest", b"raw")
        return agrees(case)

    with Council.inline(seats=seats(lite=tells), traces="otlp") as council:
        council.propose("Delete it", wait_for="all")
    by_seat = {each.attributes.get(names.SEAT): each.attributes for each in collector.spans}
    assert len(collector.spans) == 5
    assert by_seat["lite"]["mind.digest"] == b"raw"
    assert "mind.digest" not in by_seat["prime"]


def test_once_it_has_ended_nothing_is_sent_any_more() -> None:
    """Mutation: a collector that hangs is asked again for each batch that waited, long after the council closed."""
    sent = InMemorySpanExporter()
    telling = tracing._reporting(sent)
    assert telling.export([]) is SpanExportResult.SUCCESS
    telling.shutdown()
    assert telling.export(["late"]) is SpanExportResult.FAILURE
    assert sent.get_finished_spans() == ()


def test_the_variables_of_opentelemetry_hold(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "deploys")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=infra")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with Council.inline(seats=seats(), traces="otlp") as council:
        council.propose("Delete it")
    assert collector.spans == []
    monkeypatch.delenv("OTEL_TRACES_SAMPLER")
    with Council.inline(seats=seats(), traces="otlp") as council:
        council.propose("Delete it")
    resource = collector.spans[0].resource
    assert (resource["service.name"], resource["team"]) == ("deploys", "infra")


def test_a_collector_that_is_away_is_told_once_and_the_council_goes_on(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses, then it is overloaded; neither keeps a council from deciding, or from closing."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    collector.status = 400
    with (
        capture_logs() as logs,
        caplog.at_level(logging.DEBUG, "opentelemetry"),
        Council.inline(seats=seats(), traces="otlp") as council,
    ):
        for number in range(3):
            asked = collector.asked
            assert council.propose(f"Delete {number}").outcome == "approved"
            until(lambda before=asked: collector.asked > before)
        collector.status = 200
        council.propose("Delete the last")
        collector.until("council.decide")
        collector.status = 503  # which it asks to be tried again after, and closing does not wait for
        council.propose("Delete one more")
        monkeypatch.setattr(tracing, "FLUSH_S", 0.1)
    said = [entry["event"] for entry in logs if "traces" in entry["event"]]
    assert said[:2] == ["traces can't be sent", "traces are sent again"]
    assert said[-1] == "the last traces were not sent"
    assert said.count("traces can't be sent") <= 2
    assert said.count("traces are sent again") == 1
    assert logs[[entry["event"] for entry in logs].index("traces can't be sent")]["to"].startswith(
        "http://127"
    )
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'council-runtime\[otel\]'"):
        Council.inline(seats=seats(), traces="otlp")


def test_a_variable_that_can_t_be_read_is_named(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with pytest.raises(ConfigError, match=r"traces = 'otlp' can't be used: .*queue.*see the variables OTEL_"):
        Council.inline(seats=seats(), traces="otlp")


def test_another_value_of_the_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"traces.*'off', 'otlp' or 'global'"):
        Council.inline(seats=seats(), traces="jaeger")  # type: ignore[arg-type]
