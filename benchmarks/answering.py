"""How fast `distill` lets the verifier answer, beside Hugging Face `generate`.

`python benchmarks/answering.py --data FILE [--batch 64] [--prompts 192] [--repeats 3] [--out FILE.json]`

Both answer the same prompts with the same weights, greedily, up to the same number of new tokens, on the same
threads; runs are interleaved and medians compared. `generate` runs batches of `--batch`, sorted by length and
padded on the left; ours keeps the same number of lanes and refills them. It is a measurement, not a test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from viasd_core.distill.answers import Answering
from viasd_core.distill.collect import common_opening
from viasd_core.distill.lanes import LaneRunner
from viasd_core.distill.prompts import Prompt, prepare, read_prompts
from viasd_core.layers import BlockRunner
from viasd_core.pair import load_pair, verifier_vocab
from viasd_core.recording import hardware

TAPS = 4


def ours(runner: BlockRunner, eos: frozenset[int], prompts: list[Prompt], lanes: int, new: int) -> int:
    """New tokens, features kept as `distill` keeps them."""
    longest = max(len(prompt.ids) for prompt in prompts)
    taps = tuple(range(1, runner.n_layers - 1, runner.n_layers // TAPS))
    opening = common_opening([prompt.ids[:-1] for prompt in prompts])
    answering = Answering(
        LaneRunner(runner, taps, lanes, longest + new, opening),
        lanes=lanes,
        max_new_tokens=new,
        temperatures=(0.0,),
        eos_ids=eos,
        seed=0,
    )
    return sum(answer.new_tokens for answer in answering.answers(iter(prompts)))


@torch.inference_mode()
def theirs(model: Any, eos: frozenset[int], prompts: list[Prompt], batch: int, new: int) -> int:
    """New tokens up to and including the first end of each text."""
    total, pad = 0, min(eos)
    ordered = sorted(prompts, key=lambda prompt: len(prompt.ids))
    for first in range(0, len(ordered), batch):
        group = ordered[first : first + batch]
        width = max(len(prompt.ids) for prompt in group)
        ids = torch.full((len(group), width), pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(group):
            ids[row, width - len(prompt.ids) :] = torch.tensor(prompt.ids)
            mask[row, width - len(prompt.ids) :] = 1
        found = model.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            do_sample=False,
            max_new_tokens=new,
            eos_token_id=sorted(eos),
            pad_token_id=pad,
        )
        for row in found[:, width:].tolist():
            ends = [place for place, token in enumerate(row, start=1) if token in eos]
            total += ends[0] if ends else len(row)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=192)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    pair = load_pair(args.preset, drafter="none", device=args.device)
    prompts, _ = prepare(pair, read_prompts(args.data), longest=160, seed=0)
    prompts = prompts[: args.prompts]
    runner = BlockRunner(pair.verifier.model, vocab_size=verifier_vocab(pair.verifier))
    eos, model, new = pair.verifier.eos_ids, pair.verifier.model, args.max_new_tokens
    seconds: dict[str, list[float]] = {"ours": [], "hf": []}
    tokens: dict[str, int] = {}
    for _ in range(args.repeats):
        for name in seconds:
            started = time.perf_counter()
            if name == "ours":
                tokens[name] = ours(runner, eos, prompts, args.batch, new)
            else:
                tokens[name] = theirs(model, eos, prompts, args.batch, new)
            seconds[name].append(time.perf_counter() - started)
    speed = {name: tokens[name] / statistics.median(seconds[name]) for name in seconds}
    ratios = [
        tokens["ours"] / mine * other / tokens["hf"]
        for mine, other in zip(seconds["ours"], seconds["hf"], strict=True)
    ]
    result = {
        "preset": args.preset,
        "prompts": len(prompts),
        "batch": args.batch,
        "max_new_tokens": new,
        "new_tokens": tokens,
        "seconds": seconds,
        "tokens_per_s": speed,
        "ratio": statistics.median(ratios),
        "hardware": hardware(runner.device),
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
