"""From a committed cycle to trace rows and streamed text."""

from __future__ import annotations

from dataclasses import replace

from .commit import Commit
from .methods.outcome import Drafted, Judged, NewToken, Outcome
from .text import OutputText, Spelling, display
from .trace import ShownEdit, TokenRow


class Emitter:
    """Keeps the visible output in step with the committed tokens and builds each cycle's rows."""

    def __init__(self, prompt_len: int, spell: Spelling, text: OutputText) -> None:
        self.prompt_len, self.spell, self.text = prompt_len, spell, text

    def rows(
        self, cycle: int, outcome: Outcome, done: Commit, tokens: list[int], *, greedy: bool, t_us: int
    ) -> tuple[list[TokenRow], list[int], list[ShownEdit]]:
        """(rows of this cycle, out_pos of retracted earlier tokens, edits of earlier tokens' bytes)."""
        standing = len(tokens) if done.corrected is None else done.corrected
        retracted = list(range(standing - self.prompt_len, done.start - self.prompt_len))[::-1]
        self.text.truncate(min(standing, done.start) - self.prompt_len)
        rows = [
            replace(self._draft_row(offset, drafted, outcome, done, standing, greedy), cycle=cycle, t_us=t_us)
            for offset, drafted in enumerate(outcome.drafted)
        ]
        if outcome.new is not None:
            position = done.start + outcome.kept
            emitted = outcome.kept < done.stands and position < standing
            slot = outcome.kept if outcome.drafted else 0
            rows.append(self._new_row(slot, outcome.new, position, emitted, cycle, t_us))
        if done.correction is not None and done.corrected is not None:
            slot = max(0, done.corrected - done.start)
            rows.append(self._new_row(slot, done.correction, done.corrected, True, cycle, t_us))
        self._spell_rows(rows)
        edits = self._hide_stop(rows, tokens, done.cut.stop_start)
        return rows, retracted, edits

    def text_only(self, done: Commit, tokens: list[int]) -> None:
        """Keep the visible output in step without building rows: what an untraced run needs."""
        first = min(done.start, len(tokens) if done.corrected is None else done.corrected)
        self.text.truncate(first - self.prompt_len)
        for token in tokens[first:]:
            self.text.append(b"" if token in self.spell.special_ids else self.spell[token])
        self._hide_stop([], tokens, done.cut.stop_start)

    def _draft_row(
        self, offset: int, drafted: Drafted, outcome: Outcome, done: Commit, standing: int, greedy: bool
    ) -> TokenRow:
        region = outcome.regions[offset] if offset < len(outcome.regions) else ""
        position = done.start + offset
        emitted = offset < min(outcome.kept, done.stands) and position < standing
        if emitted:
            verdict = "accepted_slim" if region == "A" else "accepted_full"
        else:
            verdict = "rejected" if offset == outcome.kept and region else "discarded"
        tau1, tau2 = outcome.thresholds if outcome.thresholds and region else (None, None)
        return TokenRow(
            cycle=0,
            slot=offset,
            token_id=drafted.token,
            text="",
            data=self.spell[drafted.token],
            source="draft",
            verdict=verdict,
            emitted=emitted,
            out_pos=position - self.prompt_len if emitted else None,
            region=region,
            shown=drafted.token not in self.spell.special_ids,
            node=offset,
            parent=offset - 1,
            logp_draft=drafted.logp_draft,
            logp_slim=drafted.logp_slim,
            logp_full=_logp_full(outcome.judged, position),
            p_used=drafted.p_used,
            slim_ratio=drafted.ratio,
            thr1=tau1,
            thr2=tau2,
            rand_u=drafted.rand_u if region == "C" and not greedy else None,
            top2_margin=drafted.margin,
            entropy_draft=drafted.entropy,
            tier=drafted.tier if region in ("A", "B") else None,
        )

    def _new_row(
        self, slot: int, new: NewToken, position: int, emitted: bool, cycle: int, t_us: int
    ) -> TokenRow:
        return TokenRow(
            cycle=cycle,
            slot=slot,
            token_id=new.token,
            text="",
            data=self.spell[new.token],
            source=new.source,
            verdict=new.verdict if emitted else "discarded",
            emitted=emitted,
            out_pos=position - self.prompt_len if emitted else None,
            shown=new.token not in self.spell.special_ids,
            logp_slim=new.logp_slim,
            logp_full=new.opinion.logp if new.opinion else None,
            p_used=new.p_used,
            t_us=t_us,
            tier=new.tier,
        )

    def _spell_rows(self, rows: list[TokenRow]) -> None:
        """Display text of each row behind the bytes that precede it, and the shown bytes of what was emitted.

        A rejected draft is spelled behind the same prefix as the token that replaced it.
        """
        pending = self.text.pending
        draft_pending = pending
        for index, row in enumerate(rows):
            before = draft_pending if row.source == "draft" else pending
            if not row.shown:
                text, after = row.data.decode("utf-8", "replace"), before
            else:
                text, after = display(before, row.data)
            rows[index] = replace(row, text=text)
            if row.source == "draft":
                draft_pending = after
            if row.emitted:
                pending = after
                self.text.append(row.data if row.shown else b"")

    def _hide_stop(self, rows: list[TokenRow], tokens: list[int], stop_start: int | None) -> list[ShownEdit]:
        """A completed stop string and what follows are not shown; of the token it begins in, the bytes before
        it are.
        """
        if stop_start is None:
            return []
        here = {row.out_pos: index for index, row in enumerate(rows) if row.emitted}
        edits, offset = [], 0
        for out_pos, token in enumerate(tokens[self.prompt_len :]):
            data = self.spell[token]
            kept = data[: max(0, stop_start - offset)]
            offset += len(data)
            if offset <= stop_start or token in self.spell.special_ids:
                continue
            self.text.trim(out_pos, kept)
            shown, data = bool(kept), kept or data
            text = data.decode("utf-8", "replace")
            if out_pos in here:
                rows[here[out_pos]] = replace(rows[here[out_pos]], shown=shown, data=data, text=text)
            else:
                edits.append(ShownEdit(out_pos, shown, data, text))
        return edits


def _logp_full(judged: Judged | None, position: int) -> float | None:
    return judged.at(position).logp if judged is not None else None
