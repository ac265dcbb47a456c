"""`accelerate launch` with two processes: each answers its share, and one of them writes the drafter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from toys import toy_model, toy_tokenizer
from viasd_core.distill.team import join_team

ROOT = Path(__file__).parents[2]


def test_a_process_on_its_own_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    team = join_team("cpu")
    team.wait()
    assert (team.rank, team.size, team.leads) == (0, 1, True)


@pytest.mark.slow
def test_two_launched_processes_make_one_drafter(tmp_path: Path) -> None:
    toy_model(layers=8).float().save_pretrained(tmp_path / "verifier")
    toy_tokenizer().save_pretrained(tmp_path / "verifier")
    (tmp_path / "toy.yaml").write_text("verifier: {folder: verifier}\ndrafter: {kind: none}\n")
    prompts = [{"prompt": f"Count {number} to {number * 7} in words."} for number in range(40)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += [
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "-m",
        "viasd_core",
    ]
    command += ["distill", "--preset", str(tmp_path / "toy.yaml"), "--data", str(tmp_path / "prompts.jsonl")]
    command += ["--kind", "ar", "--blocks", "0,7", "--out", str(tmp_path / "out"), "--max-new-tokens", "6"]
    command += ["--lanes", "8", "--draft-vocab", "100", "--batch", "4", "--epochs", "2", "--device", "cpu"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shards = sorted(path.name.split("-")[1] for path in (tmp_path / "out" / "answers").glob("*.safetensors"))
    assert set(shards) == {"0", "1"}, "each process wrote its share"
    assert done.stderr.count("tokens of the verifier's own") == 1, "one process talks"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["initialised_from_layers"] == [0, 7]
    assert load_file(tmp_path / "out" / "model.safetensors")["d2t"].shape == (100,)
