"""kill -9 of ULMFiT's stages, averaged SGD, distillations, a translator and rounds of pruning: the same bits."""

import random
import signal
import time

import pytest
from safetensors.torch import load_file

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.training.callbacks import CHECKPOINT
from tests import tiny
from tests.depth import SEED, depth, some
from tests.faults.support import attempts, contents, until
from tests.translations import parallel_text

MOMENTS = depth(2, 15)
SMALL = """\
  model.num_layers: 2
  model.hidden_size: 16
  model.embedding_size: 8
  model.output_size: 8
  format.sequence_length: 16
  training.batch_size: 4
  evaluation.sequences: 8
  evaluation.rows: 4
"""
TRANSFORMER = """\
  data.tokenizer.kind: wordpiece
  data.tokenizer.lowercase: true
  data.tokenizer.vocab_size: 70
  model.num_layers: 2
  model.hidden_size: 16
  model.num_heads: 2
  model.max_positions: 32
  format.sequence_length: 16
  training.batch_size: 4
  training.precision: fp32
  evaluation.sequences: 8
"""
FINETUNED = """\
  finetuning.epochs: 4
  finetuning.batch_size: 8
  finetuning.max_length: 32
  finetuning.precision: fp32
"""
ONE_CELL = """\
axes:
  arm: [whole]
variants:
  arm: {whole: {}}
baseline: {arm: whole}
seeds: 1
scales:
  smoke: {description: seconds}
metrics:
"""
OF_TASK = """\
  - {name: bigram_shift.accuracy, label: accuracy}
tasks: [bigram_shift]
"""
ULMFIT = f"""\
question: Do stages that are killed end as if they were not?
base: ulmfit
set:
  data.corpora: ["CORPUS"]
  data.tokenizer.vocab_size: 70
{SMALL}  evaluation.points: 2
  training.steps: 30
  training.start:
    data.corpora: ["OTHER"]
    data.tokenizer.vocab_size: 64
    training.steps: 30
    optimizer.peak_lr: 1.0e-3
    optimizer.rate_divisor: 1.0
{FINETUNED}  finetuning.protocol: ulmfit
  finetuning.train_examples: 32
  finetuning.window: 8
{ONE_CELL}{OF_TASK}"""
AVERAGED = f"""\
question: Does a training whose weights are averaged, and that is killed, end as if it were not?
base: awd_lstm
set:
  data.corpora: ["CORPUS"]
  data.tokenizer.vocab_size: 70
{SMALL}  evaluation.points: 20
  training.steps: 60
  optimizer.algorithm: sgd
  optimizer.peak_lr: 10.0
  optimizer.nonmonotone_interval: 2
{ONE_CELL}  - {{name: heldout.next_loss, label: "held-out loss (nats)"}}
"""
DISTILLED = f"""\
question: Does a student that is killed end as if it were not?
base: roberta_base
set:
  data.corpora: ["CORPUS"]
{TRANSFORMER}  training.steps: 30
  training.start: {{model.num_layers: 3, training.stop_after: 20, objectives.mlm.weight: 1.0}}
  training.start_layers: [0, 2]
  objectives.mlm.weight: 2.0
  objectives.distillation.teacher: {{model.num_layers: 3, objectives.mlm.weight: 1.0, seed: 7}}
  evaluation.points: 2
{ONE_CELL}  - {{name: heldout.loss, label: "held-out loss (nats)"}}
"""
TAUGHT_TASK = f"""\
question: Does a student that learns a task from a teacher, and is killed, end as if it were not?
base: roberta_base
set:
  data.corpora: ["CORPUS"]
{TRANSFORMER}  training.steps: 30
  evaluation.points: 2
  finetuning.distillation.teacher: {{model.num_layers: 3, seed: 7}}
  finetuning.distillation.weight: 0.5
  finetuning.train_examples: 64
{FINETUNED}{ONE_CELL}{OF_TASK}"""
TRANSLATED = f"""\
question: Does a translator that is killed, and its masked language model, end as if they were not?
base: transformer_base
set:
  data.corpora: ["PAIRS"]
  data.tokenizer.vocab_size: 340
  model.num_layers: 1
  model.hidden_size: 16
  model.num_heads: 2
  model.ffn_size: 32
  model.max_positions: 32
  objectives.lm.transform: bert
  objectives.lm.bias: true
  format.sequence_length: 24
  training.batch_size: 4
  training.bucket_steps: 1
  training.steps: 30
  training.start:
    model.kind: transformer
    objectives.lm: null
    objectives.mlm: {{}}
    format.kind: full_sentences
    format.break_mode: none
    format.languages: in_turn
  training.start_parts: {{words: words, encoder: layers, decoder: layers, output: output}}
  evaluation.sequences: 8
  evaluation.points: 2
{ONE_CELL}  - {{name: heldout.next_loss, label: "held-out loss (nats)"}}
"""
PRUNED = f"""\
question: Do rounds that are killed end as if they were not?
base: roberta_base
set:
  data.corpora: ["CORPUS"]
{TRANSFORMER}  training.steps: 8
  finetuning.weight_pruning.share: 0.6
  finetuning.weight_pruning.rounds: 3
  finetuning.train_examples: 64
{FINETUNED}{ONE_CELL}{OF_TASK}"""


def written(grid, cached):
    """The text of a grid with the places of its corpora."""
    places = {"CORPUS": tiny.text(cached / "corpus", 12), "OTHER": tiny.text(cached / "other", 24)}
    for name, place in (places | {"PAIRS": parallel_text(cached / "pairs")}).items():
        grid = grid.replace(name, place)
    return grid


def killed_in(child, checkpoint, after):
    """Kills a launcher that has made a checkpoint of a run, or of the next step where there was one, and goes on."""

    def stamp():
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0

    before = stamp()
    until(lambda: child.poll() is not None or stamp() != before)
    time.sleep(after)
    child.kill()
    assert child.wait() == -signal.SIGKILL, child.stdout.read()


@pytest.mark.parametrize(
    ("text", "runs"),
    some([(DISTILLED, 3), (ULMFIT, 3), (AVERAGED, 1), (TAUGHT_TASK, 4), (TRANSLATED, 2)], 1),
)
def test_what_is_killed_ends_in_the_same_bits(cached, begin, text, runs):
    """Checkpoints after every step; metrics, curve and weights are those of a training that nothing disturbs."""
    grid = cached / "killed.yaml"
    grid.write_text(written(text, cached), encoding="utf-8")
    reference, records, noise = Records(cached / "reference"), Records(cached / "results"), random.Random(SEED)
    found = plan(grids.read(grid), "smoke", records=reference)
    execute(found, reference, "inline")
    for run_id in (run.id for run in found.runs):
        checkpoint = records.work_folder(run_id) / CHECKPOINT
        for _ in range(MOMENTS):
            killed_in(begin("launch", grid, records.folder), checkpoint, noise.uniform(0.0, 0.05))
    child = begin("launch", grid, records.folder)
    assert child.wait() == 0, child.stdout.read()
    assert len(contents(reference)) == runs
    assert contents(records) == contents(reference)
    assert all(len(story) > MOMENTS for story in attempts(records).values())
    for run_id in contents(reference):
        one, other = (load_file(place.weights(run_id)) for place in (reference, records))
        assert all(other[name].equal(tensor) for name, tensor in one.items())


@pytest.mark.nightly
def test_rounds_of_pruning_with_two_launchers_end_in_the_same_bits(cached, begin):
    """Kills within each round, of one launcher or of both, and between rounds, as soon as one has its record."""
    grid = cached / "rounds.yaml"
    grid.write_text(written(PRUNED, cached), encoding="utf-8")
    reference, records, noise = Records(cached / "reference"), Records(cached / "results"), random.Random(SEED)
    found = plan(grids.read(grid), "smoke", records=reference)
    execute(found, reference, "inline")
    (last,) = found.cells[0].finetunings
    rounds = [last]
    while (before := rounds[-1].by_role.get("mask")) is not None:
        rounds.append(before)
    assert [run.finetuning.masking and run.finetuning.masking.number for run in rounds] == [3, 2, 1, None]

    def two():
        return [begin("launch", grid, records.folder) for _ in range(2)]

    def killed(children):
        for child in children:
            child.kill()
            child.wait()

    for run in reversed(rounds):
        checkpoint = records.work_folder(run.id) / CHECKPOINT
        for victims in (2, 1):
            pair = two()
            until(lambda: checkpoint.exists() or records.get(run.id) is not None)
            time.sleep(noise.uniform(0.0, 0.05))
            killed(pair[:victims])
            if victims == 1:  # the other goes on, alone, until the round has its record
                until(lambda: records.get(run.id) is not None)
                killed(pair)
    pair = two()
    assert [child.wait() for child in pair] == [0, 0], [child.stdout.read() for child in pair]
    assert len(contents(reference)) == 5
    assert contents(records) == contents(reference)
    ended = [sum(line.endswith("done") for line in story) for story in attempts(records).values()]
    assert max(ended) == 1, "no round was made twice"
    for run in rounds:
        one, other = (load_file(place.weights(run.id)) for place in (reference, records))
        assert all(other[name].equal(tensor) for name, tensor in one.items())
