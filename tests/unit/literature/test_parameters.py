"""Parameters and FLOPs: printed counts beside ours, hand-computed counts, and formula against torch's counter."""

import csv

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from ablations.commands.cli import app
from ablations.literature import configurations, parameters
from ablations.pages import parameters_page
from ablations.planning import grids
from ablations.planning.plan import plan
from lightning_modules.batch import Example
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.depth import NIGHTLY


@pytest.fixture(scope="module")
def found():
    return {one.configuration.id: one for one in parameters.comparisons()}


# --- printed counts


def test_every_deviation_is_small_or_has_a_reason(found):
    for id, one in found.items():
        if one.deviation is not None and abs(one.deviation) > parameters.CLOSE:
            assert one.rounds or one.configuration.explanation, id
        assert one.reason != "Unexplained.", id


def test_what_is_unexplained_says_so_and_is_only_alberts_largest(found):
    unexplained = {id for id, one in found.items() if "unexplained" in one.reason.lower()}
    assert unexplained == {"albert_t1_albert_xxlarge", "albert_t13_l12", "albert_t13_l24"}


def test_bert_base_by_hand(found):
    """Devlin et al. (2019), section 3: tables, twelve layers, pooler."""
    d, f = 768, 3072
    tables = (30_522 + 512 + 2) * d + 2 * d
    attention, forward, norms = 4 * (d * d + d), (d * f + f) + (f * d + d), 2 * 2 * d
    encoder = tables + 12 * (attention + forward + norms)
    assert found["bert_base"].encoder == encoder
    assert found["bert_base"].pooler == encoder + d * d + d == 109_482_240
    vocabulary_head, pair_head = (d * d + d) + 2 * d + 30_522, (d * d + d) + 2 * d + 2
    assert found["bert_base"].heads == encoder + vocabulary_head + pair_head


def test_albert_base_by_hand(found):
    """Lan et al. (2020), section 3.1: narrow tables, a projection, one layer for all twelve."""
    d, e = 768, 128
    tables = (30_000 + 512 + 2) * e + 2 * e + (e * d + d)
    layer = 4 * (d * d + d) + (d * 4 * d + 4 * d) + (4 * d * d + d) + 2 * 2 * d
    pooler = tables + layer + d * d + d
    assert found["albert_t1_albert_base"].pooler == pooler == 11_683_584
    assert found["albert_t11_l1"].counted == found["albert_t11_l48"].counted


def test_what_is_shared_counts_once(found):
    """Table 4 of ALBERT: eleven attentions, or eleven feed-forwards, fewer, each with its LayerNorm."""
    d, own = 768, found["albert_t4_e768_not_shared"].encoder
    attention, forward = 4 * (d * d + d) + 2 * d, 8 * d * d + 5 * d + 2 * d
    assert found["albert_t4_e768_shared_attention"].encoder == own - 11 * attention
    assert found["albert_t4_e768_shared_ffn"].encoder == own - 11 * forward
    assert found["albert_t4_e768_all_shared"].encoder == own - 11 * (attention + forward)
    grouped = SYSTEMS["albert_base"].but(**{"model.sharing_groups": 3})
    assert grouped.parameters() - SYSTEMS["albert_base"].parameters() == 2 * (attention + forward)


def test_a_wide_position_table_gives_alberts_printed_counts(found):
    """The arithmetic of the page's note: 512 x (H - E) parameters more, and each count rounds to the printed one."""
    tables = ("Tables 1 and 2", "Table 3", "Table 4", "Table 11", "Table 12")
    rows = [one for one in found.values() if one.configuration.paper == "ALBERT" and one.configuration.table in tables]
    failing = set()
    for one in rows:
        model = one.configuration.system.model
        wide = one.counted + 512 * (model.hidden_size - (model.embedding_size or model.hidden_size))
        if not parameters.rounds_to(wide, one.configuration.printed):
            failing.add(one.configuration.id)
    assert len(rows) == 33
    assert failing == {"albert_t1_albert_xxlarge", "albert_t1_bert_xlarge"}


@pytest.mark.parametrize(
    ("count", "printed", "expected"),
    [(11_683_584, "12", True), (11_683_584, "11.7", True), (58_718_592, "60", False), (4_433_000, "4.4", True),
     (4_460_000, "4.4", False), (1, "", False)],
)  # fmt: skip
def test_rounding_keeps_the_printed_digits(count, printed, expected):
    assert parameters.rounds_to(count, printed) is expected


def test_pages_have_every_row_and_the_same_bytes_each_time(tmp_path, found):
    for folder in ("one", "two"):
        parameters_page.publish(tmp_path / folder)
    names = sorted(path.name for path in (tmp_path / "one" / "published").iterdir())
    assert names == [
        *(f"parameters.{end}" for end in ("csv", "json", "md", "svg")),
        *(f"systems.{end}" for end in ("csv", "md", "svg")),
    ]
    for name in names:
        one, two = ((tmp_path / folder / "published" / name).read_bytes() for folder in ("one", "two"))
        assert one == two, name
    with (tmp_path / "one" / "published" / "parameters.csv").open() as stream:
        rows = {row["id"]: row for row in csv.DictReader(stream)}
    assert list(rows) == [*found, *(item.id for item in configurations.read().absent)]
    assert rows["bert_base"]["with pooler"] == "109482240"
    assert rows["mosaicbert_base"]["counted"] == ""
    assert rows["transformer_base"]["encoder"] == "63082496"
    assert rows["elmo_original"]["encoder"] == "93600848"


# --- reading the file


# --- the command


@pytest.fixture
def command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["params", *words])


def test_a_system_a_configuration_or_a_changed_one_shows_its_parts(command):
    shown = command("bert_base").output
    assert "prints 110 M: 109.48 M counted" in shown
    assert "558 M FLOPs per token, 23.8 T per step of 42.6 k tokens, forward and backward, means" in shown
    full = command("bert_base", "--set", "format.first_share=0").output
    assert "588 M FLOPs per token, 77.1 T per step of 131 k tokens, forward and backward\n" in full
    assert "prints 60 M" in command("albert_t1_albert_xlarge").output
    changed = command("bert_base", "--set", "model.num_layers=3").output
    assert "46,315,580" in changed
    assert "prints" not in changed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bert_bse"], "no system or published configuration 'bert_bse'. Did you mean 'bert_base'?"),
        (["albert_t4_e128_shared_fnn"], "Did you mean 'albert_t4_e128_shared_ffn'?"),
        (["mosaicbert_base"], "cannot be built yet"),
        (["bert_base", "--set", "model.num_layres=3"], "Did you mean 'model.num_layers'?"),
        (["--set", "model.num_layers=3"], "changes one system"),
    ],
)
def test_unknown_names_get_the_nearest(command, words, said):
    result = command(*words)
    assert result.exit_code == 2
    assert said in result.output


# --- FLOPs


def _counted(system: System, rows: int) -> float:
    """FLOPs of a forward and a backward pass over full sequences, by torch's counter on the meta device."""
    length, vocab_size = system.format.sequence_length, system.data.tokenizer.vocab_size
    tokens = make_tokens(rows, length, vocab_size)
    if not system.format.unpredicted(length):
        tokens.special[:], tokens.following = False, tokens.ids[:, 0]
    vocabulary = make_vocabulary(vocab_size)
    example = system.objectives.mask_inputs(Example.of(tokens), make_draws(rows), vocabulary).to("meta")
    with torch.device("meta"):
        module = system.build(seed=0)
    with FlopCounterMode(display=False) as counter:
        encoded = module.backbone(example, module.backbone.begin(rows))
        terms = system.objectives.loss(module.heads, encoded, example)
        sum(total / count for total, count, _ in terms.values()).backward()
    return counter.get_total_flops()


# torch counts no products inside its own LSTM: tests/unit/model/test_recurrent.py
TRANSFORMERS = [name for name, system in SYSTEMS.items() if system.model.kind == "transformer"]
FIRST = {name.rpartition("_")[0] or name: name for name in reversed(TRANSFORMERS)}.values()  # of each family


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS if NIGHTLY else FIRST)
def test_the_formula_is_torchs_count_for_every_system(name):
    rows = 64  # of a batch, which share the projection of distances that the formula leaves out
    alone = {"objectives.distillation": None, "training.start": {}, "training.start_layers": []}  # without a teacher
    if SYSTEMS[name].format.languages != "one_text":
        alone |= {"format.languages": "one_text", "model.languages": [], "objectives.mlm.masking.count": "round"}
    system = SYSTEMS[name].but(**{"training.batch_size": rows, "format.first_share": 0.0} | alone)
    assert system.flops_per_step() == pytest.approx(_counted(system, rows), rel=0.002)
    assert system.flops_per_token() == system.flops_per_step() / (rows * system.format.sequence_length)


def test_a_curriculum_costs_what_its_phases_cost():
    bert = SYSTEMS["bert_base"]
    short, full = (
        bert.but(**{"format.first_share": 0.0, "format.sequence_length": length, "training.steps": steps})
        for length, steps in ((128, 900_000), (512, 100_000))
    )
    assert bert.tokens() == short.tokens() + full.tokens() == 256 * (128 * 900_000 + 512 * 100_000)
    assert bert.flops() == pytest.approx(short.flops() + full.flops(), rel=1e-12)


SMALL = {"model.num_layers": 4, "model.hidden_size": 64, "model.num_heads": 4, "data.tokenizer.vocab_size": 500,
         "format.sequence_length": 32, "training.batch_size": 8}  # fmt: skip
RATE = "objectives.mlm.masking.rate"


@pytest.mark.parametrize(
    "knobs",
    [
        {"model.sharing": "all"}, {"model.sharing": "attention"}, {"model.sharing": "ffn", "model.sharing_groups": 2},
        {"model.embedding_size": 16}, {"model.embedding_size": 128}, {"model.num_heads": 16}, {"model.num_heads": 1},
        {"model.ffn_size": 96}, {"model.norm": "pre"}, {"model.positions": "sinusoidal"}, {"model.positions": "none"},
        {"model.positions": "linear_bias"}, {"model.positions": "sided_linear_bias"}, {"model.segment_types": 0},
        {"model.dropout": 0.0, "model.attention_dropout": 0.0},
        {"objectives.sentence": None}, {"format.negatives": "swapped"},
        {RATE: 0.01}, {RATE: 0.05}, {RATE: 0.4}, {RATE: 0.8}, {"objectives.mlm.masking.cap": 3},
        {"format.sequence_length": 100, "model.max_positions": 100, RATE: 0.15},
    ],
    ids=str,
)  # fmt: skip
def test_the_formula_is_torchs_count_for_every_knob(knobs):
    system = SYSTEMS["bert_base"].but(**SMALL | knobs)
    assert system.flops_per_step() == pytest.approx(_counted(system, 8), rel=1e-9)


def test_plans_say_flops_a_token_and_a_step():
    rows = plan(grids.read("masking_ratio"), "laptop").table()
    assert (rows["flops"] / rows["tokens"]).equals(rows["flops a token"])
    assert rows["flops a step"].tolist() == pytest.approx((rows["flops"] / rows["steps"]).tolist())
    assert rows.sort_values("objectives.mlm.masking.rate")["flops a token"].is_monotonic_increasing
