"""From a committed cycle to trace rows and streamed text."""

from __future__ import annotations

from dataclasses import replace

from .commit import Commit
from .cure.growth import DraftTree
from .methods.outcome import Drafted, Judged, NewToken, Outcome, Verified
from .text import OutputText, Spelling, display
from .trace import ShownEdit, TokenRow, TreeRow
from .trace_positions import DRAFTED


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
        tree = outcome.tree
        rows = [
            replace(self._draft_row(offset, drafted, outcome, done, standing, greedy), cycle=cycle, t_us=t_us)
            for offset, drafted in enumerate(outcome.drafted)
        ]
        spelled = spell_tree(tree.tree, self.spell, self.text.pending) if tree is not None else []
        beside = [
            replace(self._passed_over(drafted, outcome, spelled), cycle=cycle, t_us=t_us)
            for drafted in outcome.passed_over
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
        return [*rows, *beside], retracted, edits

    def tree_rows(self, cycle: int, verified: Verified) -> list[TreeRow]:
        """Every node of a cycle's tree; to be asked for before `rows` moves the text on."""
        accepted = set(verified.accepted)
        texts = spell_tree(verified.tree, self.spell, self.text.pending)
        return [
            TreeRow(
                cycle=cycle,
                node=index,
                parent=node.parent,
                depth=node.depth,
                branch=node.branch,
                token_id=node.token,
                text=texts[index],
                logp_draft=node.logp,
                margin=node.margin,
                is_ufp=index in verified.uncertain,
                verified=True,
                accepted=index in accepted,
                on_best_path=index in accepted,
            )
            for index, node in enumerate(verified.tree.nodes)
        ]

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
        return replace(
            self._proposed(offset, drafted, outcome),
            verdict=verdict,
            emitted=emitted,
            out_pos=position - self.prompt_len if emitted else None,
            region=region,
            logp_full=_logp_full(drafted, outcome.judged, position),
            thr1=tau1,
            thr2=tau2,
            rand_u=drafted.rand_u if region == "C" and not greedy else None,
            tier=drafted.tier if region in ("A", "B") else None,
        )

    def _passed_over(self, drafted: Drafted, outcome: Outcome, spelled: list[str]) -> TokenRow:
        """A token of branch 0 behind the place where a repair took over."""
        assert drafted.node is not None
        row = self._proposed(drafted.offset, drafted, outcome)
        return replace(row, text=spelled[drafted.node], logp_full=drafted.logp_full)

    def _proposed(self, offset: int, drafted: Drafted, outcome: Outcome) -> TokenRow:
        """What is known of a drafted token before anybody has judged it."""
        node, parent = offset, offset - 1
        if outcome.tree is not None and drafted.node is not None:
            node, parent = drafted.node, outcome.tree.tree.parents[drafted.node]
        return TokenRow(
            cycle=0,
            slot=offset,
            token_id=drafted.token,
            text="",
            data=self.spell[drafted.token],
            source="repair" if drafted.branch else "draft",
            verdict="discarded",
            emitted=False,
            shown=drafted.token not in self.spell.special_ids,
            branch=drafted.branch,
            node=node,
            parent=parent,
            logp_draft=drafted.logp_draft,
            logp_slim=drafted.logp_slim,
            p_used=drafted.p_used,
            slim_ratio=drafted.ratio,
            top2_margin=drafted.margin,
            is_ufp=drafted.is_ufp,
            alt=drafted.alternatives,
            entropy_draft=drafted.entropy,
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
            drafted = row.source in DRAFTED
            text, after = _spelled(row.data, draft_pending if drafted else pending, shown=row.shown)
            rows[index] = replace(row, text=text)
            if drafted:
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


def spell_tree(tree: DraftTree, spell: Spelling, pending: bytes) -> list[str]:
    """Display text of each node behind the bytes of its ancestors; `pending` are those before the tree."""
    texts: list[str] = []
    left: list[bytes] = []
    for node in tree.nodes:
        before = pending if node.parent < 0 else left[node.parent]
        text, after = _spelled(spell[node.token], before, shown=node.token not in spell.special_ids)
        texts.append(text)
        left.append(after)
    return texts


def _spelled(data: bytes, before: bytes, *, shown: bool) -> tuple[str, bytes]:
    """(display text, bytes pending after it) of a token; a special one leaves what is pending alone."""
    return display(before, data) if shown else (data.decode("utf-8", "replace"), before)


def _logp_full(drafted: Drafted, judged: Judged | None, position: int) -> float | None:
    if drafted.logp_full is not None or judged is None:
        return drafted.logp_full
    return judged.at(position).logp
