"""`distill` from prompts to a drafter: answer, train, write; every stage picks up what is already there."""

from __future__ import annotations

import hashlib
import json
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..drafters.checkpoints import Target
from ..drafters.dflash import default_taps
from ..errors import DataError, SettingsError
from ..pair import load_pair, target_of
from ..presets import load_preset
from ..recording import hardware
from ..sources import choose_device, public_identity
from ..terminal import printable
from .ar import ArObjective, most_important
from .batches import feature_scale, held_out, id_counts
from .block import BlockObjective
from .card import refuse_foreign, write_card, write_drafter
from .collect import Plan
from .eagle import EagleObjective
from .objective import Objective
from .prompts import prepare, read_prompts
from .request import Request
from .shards import ShardFolder, read_shard
from .start import Start, read_start
from .team import Team, join_team
from .texts import read_texts, write_texts
from .train import STATE, Trainer, Training
from .workers import Work, answer_all

IMPORTANCE_TEXTS = 8  # answers that the blocks' importance is measured on


def distill(
    preset: str,
    request: Request,
    data: Sequence[str],
    out: Path,
    *,
    task: str | None = None,
    answers: Path | None = None,
    kept_texts: Path | None = None,
    workers: int = 1,
    dtype: str = "auto",
    device: str = "auto",
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Make the drafter `request` asks for in folder `out`; figures for `--json`.

    `task` names the layout of `data` where it cannot be recognised. `answers` is where the verifier's
    answers are kept and looked for (default: `out`/answers); drafters of all kinds can share them.
    `kept_texts` is a file of answers without features: taken from where it holds them, completed when all are
    there. Raises DataError, SettingsError, SourceError, PairError.
    """
    started = time.perf_counter()
    texts = read_prompts(data, task)
    start = None if request.start is None else read_start(request.start)
    if start:
        request = start.shaping(request)
        if out.resolve() == start.folder:
            raise SettingsError(f"--start and --out are both {out}; give the new drafter a folder of its own")
    refuse_foreign(out)
    team = join_team(choose_device(device))
    given = load_preset(preset)
    pair = load_pair(given, drafter="none", dtype=dtype, device=device)
    target = target_of(pair)
    if start:
        start.refuse_for(public_identity(pair.verifier.identity), target)
    check_shape(request, target)
    if start:
        ids, mask = start.draft_ids(target.runner.vocab_size), start.mask_token or 0
        start.refuse_shape(fresh(request, target, start.taps, request.origins, ids, mask, None))
    prompts, too_long = prepare(pair, texts, longest=request.longest_prompt, seed=request.seed)
    say = tell if team.leads else silence
    say(f"{len(prompts)} prompts; {too_long} left out as empty or above {request.longest_prompt} tokens")
    plan = Plan(
        tokens=request.tokens,
        lanes=request.lanes,
        longest_prompt=request.longest_prompt,
        max_new_tokens=request.max_new_tokens,
        temperatures=request.temperatures,
        taps=(start.taps if start else ()) or default_taps(target.runner.n_layers, taps_for(request, target)),
        seed=request.seed,
    )
    digest = hashlib.sha256(json.dumps([prompt.ids for prompt in prompts]).encode()).hexdigest()
    verifier = public_identity(pair.verifier.identity)
    identity = plan.identity(verifier, digest)
    folder = ShardFolder(answers or out / "answers", identity)
    known = read_texts(kept_texts, identity, target.runner.vocab_size) if kept_texts else {}
    work = Work(given, dtype, device, prompts, folder.folder, identity, plan, known)
    with tqdm(total=request.tokens // team.size, unit="tok", desc="answering", disable=quiet(team)) as bar:
        answer_all(pair, work, workers, team, bar.update)
    team.wait()
    if kept_texts and team.leads:
        say(f"{write_texts(kept_texts, folder, identity, known)} texts in {kept_texts}")
    tokens = sum(folder.summary().values())
    short = f" of {request.tokens}, since the prompts ran out" if tokens < request.tokens else ""
    say(f"{tokens} tokens of the verifier's own{short}; peak memory {peak_memory():.1f} GB")
    objective = make_objective(request, target, folder, plan, say, start)
    trained = train(objective, folder, request, out, team, start.digest if start else "")
    progress = trained.progress
    if team.leads:
        write_drafter(out, objective, verifier)
    facts = {
        "name": out.name,
        "kind": request.kind,
        "verifier": verifier["id"],
        "command": shlex.join(["python", "-m", "viasd_core", *command]),
        "data": [Path(path).name for path in data],
        "prompts": len(folder.summary()),
        "tokens": tokens,
        "steps": progress.step,
        "best_step": progress.best_step,
        "held_out": progress.best,
        "held_out_answers": trained.held_out,
        "parameters": sum(weight.numel() for weight in objective.module.parameters()),
        "settings": {
            key: value for key, value in asdict(request).items() if value not in ((), 0, False, None)
        }
        | ({"start": start.name} if start else {}),
        "minutes": (time.perf_counter() - started) / 60,
        "hardware": machine(target.runner.device),
    }
    if team.leads:
        write_card(out, facts)
    return facts


def check_shape(request: Request, target: Target) -> None:
    """Raises SettingsError for a drafter that this verifier cannot lend blocks or ids to."""
    if request.kind != "ar" and target.config.model_type == "gemma2":
        raise SettingsError(
            f"a drafter of kind {request.kind} starts from blocks of Llama's shape, which gemma2's are not; "
            "use kind ar"
        )
    layers = target.runner.n_layers
    outside = [layer for layer in request.origins if not 0 <= layer < layers]
    if outside or len(set(request.origins)) != len(request.origins):
        raise SettingsError(
            f"blocks must be different layers from 0 to {layers - 1}; got {list(request.origins)}"
        )
    if request.blocks > layers or taps_for(request, target) < 1:
        raise SettingsError(
            f"the verifier has {layers} layers: too few for {request.blocks} blocks and {request.taps} taps"
        )
    if request.longest_prompt + request.max_new_tokens > target.runner.n_ctx:
        raise SettingsError(
            f"prompts of {request.longest_prompt} tokens with answers of {request.max_new_tokens} do not fit "
            f"the verifier's context of {target.runner.n_ctx}"
        )


def taps_for(request: Request, target: Target) -> int:
    """How many layers are tapped. 0: the drafter reads more than there are. With kind ar the features are
    only kept for another drafter to come, so a shallow verifier just has fewer.
    """
    most = max(1, target.runner.n_layers - 3)
    return request.taps if request.taps <= most else most if request.kind == "ar" else 0


def make_objective(
    request: Request,
    target: Target,
    folder: ShardFolder,
    plan: Plan,
    say: Callable[[str], None],
    start: Start | None = None,
) -> Objective:
    """The drafter to train: fresh, shaped for the verifier and its own texts, or as `start` left it.

    Raises DataError without a text, SourceError for ids of a `start` that the verifier lacks.
    """
    counts = id_counts(folder.paths(), target.runner.vocab_size)
    if not int(counts.sum()):
        raise DataError(f"{folder.folder} holds no training answers; give more prompts or more --tokens")
    vocab_size = target.runner.vocab_size
    draft_ids = start.draft_ids(vocab_size) if start else most_frequent(counts, request.draft_vocab)
    kept = float(counts[draft_ids].sum() / counts.sum())
    origins = request.origins or most_important(target, some_texts(folder), request.blocks)
    named = f"layer{'s' * (len(origins) > 1)} {','.join(map(str, origins))}"
    began = f"it goes on from {start.name}" if start else f"blocks start from {named}"
    say(f"draft vocabulary of {len(draft_ids)} ids covers {100 * kept:.2f} % of the texts; {began}")
    torch.manual_seed(request.seed)
    mask_token = start.mask_token if start else None
    mask_token = unused_id(counts) if mask_token is None else mask_token
    scale = None if request.kind == "ar" else feature_scale(folder.paths()[0])
    objective = fresh(request, target, plan.taps, origins, draft_ids, mask_token, scale)
    if start:
        start.lend(objective)
    return objective


def fresh(
    request: Request,
    target: Target,
    taps: Sequence[int],
    origins: Sequence[int],
    draft_ids: Tensor,
    mask_token: int,
    scale: Tensor | None,
) -> Objective:
    """An untrained drafter of the wanted shape; `scale` [taps, H] of its features, 1 unless known."""
    if request.kind == "ar":
        return ArObjective(target, origins, draft_ids)
    if request.kind == "eagle":
        return EagleObjective(target, taps, origins[0], draft_ids, scale=scale)
    return BlockObjective(
        target,
        taps,
        origins,
        draft_ids,
        slots=request.slots,
        mask_token=mask_token,
        domino=request.domino,
        shift=True,
        scale=scale,
    )


def most_frequent(counts: Tensor, size: int) -> Tensor:
    """The `size` most frequent ids, in order of id; ids that never occur fill up from the lowest."""
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:size].sort().values


def unused_id(counts: Tensor) -> int:
    """An id the texts use least, the highest of them: the mask's embedding should mean nothing else."""
    return int((counts == counts.min()).nonzero().max())


def some_texts(folder: ShardFolder) -> list[tuple[int, ...]]:
    """A few training answers, with their prompts."""
    texts = []
    for path in folder.paths():
        shard = read_shard(path)
        for place in range(len(shard)):
            if not held_out(int(shard.index[place])):
                texts.append(shard.answer(place).ids)
            if len(texts) == IMPORTANCE_TEXTS:
                return texts
    return texts


def train(
    objective: Objective, folder: ShardFolder, request: Request, out: Path, team: Team, start: str = ""
) -> Trainer:
    """Train with a progress bar and held-out figures on stderr; the trainer when it is done."""
    training = Training(
        epochs=request.epochs,
        batch=request.batch,
        learning_rate=request.learning_rate,
        seed=request.seed,
        start=start,
    )
    say = tell if team.leads else silence
    bar = tqdm(unit="step", desc="training", disable=quiet(team))

    def report(kind: str, facts: dict[str, Any]) -> None:
        if kind in ("step", "resume"):
            bar.total, bar.n = facts["steps"], facts["step"]
            bar.set_postfix(loss=f"{facts['loss']:.3f}" if "loss" in facts else "resumed")
        elif kind == "held-out":
            agree = " ".join(f"{share:.3f}" for share in facts["agree"])
            overlap = " ".join(f"{share:.3f}" for share in facts["overlap"])
            say(
                f"step {facts['step']}: agreement on {trainer.held_out} held-out answers by position "
                f"{agree}; overlap {overlap}"
            )
        else:
            say(f"stopped at step {facts['step']}: no better for {facts['stale']} measurements")

    out.mkdir(parents=True, exist_ok=True)
    with bar:
        trainer = Trainer(objective, folder.paths(), training, out / STATE, report)
        trainer.run()
    say(f"trained; peak memory {peak_memory():.1f} GB")
    return trainer


def peak_memory() -> float:
    """GB this process has held at most: on a card there, else in main memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def machine(device: torch.device) -> str:
    facts = hardware(device)
    return str(facts.get("gpu") or f"{facts['threads']} CPU threads")


def tell(line: str) -> None:
    """A line on stderr that does not tear a progress bar."""
    tqdm.write(printable(line), file=sys.stderr)


def silence(line: str) -> None:
    """What the other processes of a team say."""


def quiet(team: Team) -> bool | None:
    """Whether a bar is hidden; None leaves it to whether stderr is a terminal."""
    return None if team.leads else True
