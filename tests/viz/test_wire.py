"""Messages: what JSON, UTF-8 and the viewer can take, and nothing lost on the way."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import sample_traces
from viasd_core.trace import CycleEvent, TokenRow, Trace
from viz import wire


def strict_json(value: object) -> str:
    return json.dumps(value, allow_nan=False)


def test_a_recorded_trace_is_a_start_its_cycles_and_an_end() -> None:
    trace = sample_traces.via_sd_trace()
    messages = wire.trace_messages(trace)
    assert [message["kind"] for message in messages] == ["start", *["cycle"] * 4, "end"]
    assert messages[-1]["run"]["totals"] == trace.summary()
    assert sum(len(message.get("rows", [])) for message in messages) == len(trace.tokens)
    assert messages[2]["events"][0]["key"] == "alpha1"


@pytest.mark.parametrize(
    "make", [sample_traces.via_sd_trace, sample_traces.strict_trace, sample_traces.tree_trace]
)
def test_messages_are_strict_json_that_utf_8_can_carry(make: object) -> None:
    assert callable(make)
    strict_json(wire.trace_messages(make())).encode()


def test_numbers_that_json_lacks_travel_as_words() -> None:
    row = replace(
        sample_traces.draft(0, 0, "x", "rejected", "C", None),
        logp_draft=-math.inf,
        audit_kl=math.nan,
        alt=((3, -math.inf), (4, -1.5)),
    )
    encoded = wire.encode_row(row)
    assert (encoded["logp_draft"], encoded["audit_kl"]) == ("-inf", "nan")
    assert encoded["alt"] == [[3, "-inf"], [4, -1.5]]
    strict_json(encoded)


def test_a_lone_surrogate_survives_in_a_token_and_is_replaced_elsewhere() -> None:
    row = replace(sample_traces.draft(0, 0, "x", "accepted_slim", "A", 0), text="a\ud800b")
    encoded = wire.encode_row(row)
    assert json.loads(encoded["text_json"]) == "a\ud800b"
    strict_json(encoded).encode()
    assert wire.plain({"prompt": "a\ud800b"}) == {"prompt": "a\ufffdb"}


def test_fields_at_their_default_are_left_out_and_only_those() -> None:
    encoded = wire.encode_row(
        TokenRow(0, 0, 0, "", b"", "draft", "discarded", False, audit_rank=0, shown=True, t_us=0)
    )
    assert encoded["audit_rank"] == 0
    assert {"cycle", "slot", "token_id", "text", "data", "emitted"} <= set(encoded)
    assert not {"shown", "t_us", "out_pos", "logp_full"} & set(encoded)


def test_a_zero_is_not_taken_for_false_or_nothing() -> None:
    row = sample_traces.drawn(0, 0, "x", "bonus", 0, p_used=0.0, rand_u=0.0, branch=0)
    encoded = wire.encode_row(row)
    assert encoded["p_used"] == 0.0
    assert encoded["rand_u"] == 0.0
    assert encoded["out_pos"] == 0


def test_events_of_unlisted_cycles_come_with_the_end() -> None:
    trace = sample_traces.via_sd_trace()
    trace.events.append(replace(trace.events[0], cycle=99, type="note"))
    assert wire.trace_messages(trace)[-1]["events"][0]["cycle"] == 99


def test_a_batch_numbers_its_messages_without_holes() -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    batch = wire.batch("r", 5, messages, t=1.5)
    assert (batch["from"], batch["seq"], batch["t"]) == (5, 4 + len(messages), 1.5)
    assert wire.batch("r", 5, []) == {"run": "r", "from": 5, "seq": 4, "events": []}


def test_an_opening_carries_no_rows() -> None:
    assert wire.opening("r", 300) == {"run": "r", "from": 301, "seq": 300, "events": []}
    assert wire.opening("r", 0, show=True)["show"] is True


def test_a_state_the_viewer_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="knows no state 'sleeping'"):
        wire.status_event("sleeping")


def test_retractions_audits_and_edits_of_a_cycle_are_sent() -> None:
    trace = sample_traces.strict_trace()
    event = CycleEvent(trace.cycles[1], audits=(sample_traces.audit(0),), retracted=(1, 2), finish="length")
    message = wire.encode_event(event)
    assert message["retracted"] == [1, 2]
    assert message["audits"][0]["rank"] == 0
    assert message["finish"] == "length"


def test_an_empty_trace_still_opens_and_closes() -> None:
    assert [message["kind"] for message in wire.trace_messages(Trace())] == ["start", "end"]
