"""Output layers of language models: transform and bias, adaptive and sampled softmax, tables of several widths."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Encoded, Example, Size, Target
from lightning_modules.config import ConfigError, identity
from lightning_modules.model import Transformer
from lightning_modules.model.embeddings import ClusteredTable
from lightning_modules.objectives import LanguageModel, heads
from lightning_modules.objectives.heads import SampledSoftmax, VocabularyHead
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.every import every
from tests.messages import naming

VOCAB, WIDTH = 50, 16
HEADS = [("bert", True), ("bert", False), ("none", True), ("none", False)]
# first ids of clusters, what each is narrower by, a bias
CLUSTERS = [((20, 35), 1, True), ((20, 35), 1, False), ((1,), 1, True), ((10, 11, 49), 1, True), ((20, 35), 2, True),
            ((20, 35), 4, False), ((1,), 16, True), ((10, 11, 49), 2, True)]  # fmt: skip
clusters = every(("cutoffs", "divisor", "bias"), CLUSTERS)


def settings_of(cutoffs=(), divisor=1, **more):
    sizes = {"num_layers": 1, "hidden_size": WIDTH, "num_heads": 2, "direction": "left_to_right", "init_std": 0.3}
    narrower = {"embedding_cutoffs": cutoffs, "embedding_divisor": divisor} if divisor > 1 else {}
    return Transformer(**sizes).but(**narrower, **more)


def built(objective, settings=None):
    """The heads with random biases, the network, and an example."""
    torch.manual_seed(0)
    settings = settings or settings_of()
    model, own = settings.build(VOCAB).eval(), objective.heads(settings.size(VOCAB))
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    example = objective.mask_inputs(Example.of(make_tokens(4, 16, VOCAB)), make_draws(4), make_vocabulary(VOCAB))
    return own, model, example


def adaptive(cutoffs, divisor, bias, transform="none"):
    objective = LanguageModel(transform=transform, bias=bias, cutoffs=cutoffs)
    return objective, *built(objective, settings_of(cutoffs, divisor))


def slopes_agree(one, other, parts):
    found = (torch.autograd.grad(loss, parts, retain_graph=True) for loss in (one, other))
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*found, strict=True))


@every(("transform", "bias"), HEADS)
def test_logits_and_losses_are_of_states_times_the_word_table(transform, bias):
    objective = LanguageModel(transform=transform, bias=bias)
    own, model, example = built(objective)
    encoded, target = model(example), example.targets["next"]
    logits = objective.logits(own, encoded, example)
    if (transform, bias) == ("none", False):
        assert torch.equal(logits, encoded.at(target.where) @ encoded.table.T)
    wanted, total = F.cross_entropy(logits, target.ids, reduction="sum"), objective.loss(own, encoded, example)["next"]
    assert torch.allclose(total, wanted)
    assert slopes_agree(total, wanted, [encoded.table])


@every(("transform", "bias", "direction"), [(*head, way) for head in HEADS for way in ("left_to_right", "two_way")])
def test_flops_are_those_that_torch_counts(transform, bias, direction):
    objective = LanguageModel(direction=direction, transform=transform, bias=bias)
    settings = settings_of(direction=direction, num_layers=2)
    own, model, example = built(objective, settings)
    encoded = model(example)
    with FlopCounterMode(display=False) as counter:
        for name in objective.targets:
            objective.logits(own, encoded, example, name)
    assert objective.flops_per_sequence(16, settings.size(VOCAB)) * 4 == counter.get_total_flops()


@torch.no_grad()
@every(("cutoffs", "divisor", "bias"), [case for case in CLUSTERS if case[1] > 1])
def test_a_word_has_the_vector_of_its_cluster_times_its_matrix(cutoffs, divisor, bias):
    model = settings_of(cutoffs, divisor).build(VOCAB)
    found = model.embeddings.word(torch.arange(VOCAB).view(5, 10)).flatten(0, 1)
    for word in range(VOCAB):
        cluster = sum(word >= cutoff for cutoff in cutoffs)
        vectors, matrix = model.clusters[cluster]
        assert vectors.shape[1] == WIDTH // divisor**cluster
        assert torch.allclose(found[word], matrix @ vectors[word - (0, *cutoffs)[cluster]], atol=1e-6)


@torch.no_grad()
def test_an_adaptive_softmax_starts_with_small_weights():
    """Before training no word is far likelier than another of its cluster."""
    torch.manual_seed(0)
    model = settings_of((20, 35), 2).but(hidden_size=128, embedding_size=128)
    found = LanguageModel(cutoffs=(20, 35)).heads(model.size(VOCAB))["vocabulary"].adaptive
    assert found.projection.std() == pytest.approx(0.01, rel=0.05)
    assert found.clusters.weight.std() == pytest.approx(0.02, rel=0.2)
    assert not found.clusters.bias.any()


@torch.no_grad()
@clusters
def test_probabilities_by_the_formula_add_up_to_one(cutoffs, divisor, bias):
    """A word's is that of its cluster times its own within it; a tail is tied to vectors and matrix of the input."""
    objective, own, model, example = adaptive(cutoffs, divisor, bias)
    head, encoded, edges = own["vocabulary"], model(example), (*cutoffs, VOCAB)
    found, states = objective.logits(own, encoded, example).exp(), encoded.at(example.targets["next"].where)
    biases, same = head.bias if bias else torch.zeros(VOCAB), torch.eye(WIDTH)
    sizes = [end - start for start, end in zip((0, *cutoffs), edges, strict=True)]
    (frequent, _), *tails = model.clusters or [(table, same) for table in encoded.table.split(sizes)]
    own_states = states @ (same if head.adaptive.projection is None else head.adaptive.projection)
    scores = own_states @ frequent.T + biases[: cutoffs[0]]
    first = torch.cat([scores, head.adaptive.clusters(own_states)], 1).softmax(1)
    for word in range(VOCAB):
        cluster = sum(word >= cutoff for cutoff in cutoffs)
        wanted = first[:, cutoffs[0] + cluster - 1 if cluster else word]
        if cluster:
            (vectors, matrix), (begin, end) = tails[cluster - 1], edges[cluster - 1 : cluster + 1]
            within = states @ matrix @ vectors.T + biases[begin:end]
            wanted = wanted * within.softmax(1)[:, word - begin]
        assert torch.allclose(found[:, word], wanted, atol=1e-6)
    assert torch.allclose(found.sum(1), torch.ones(len(found)), atol=1e-5)


@clusters
def test_the_loss_and_its_gradients_are_those_of_the_probabilities(cutoffs, divisor, bias):
    for transform in ("bert", "none"):
        objective, own, model, example = adaptive(cutoffs, divisor, bias, transform)
        encoded, ids = model(example), example.targets["next"].ids
        wanted = -objective.logits(own, encoded, example).gather(1, ids[:, None]).sum()
        total = objective.loss(own, encoded, example)["next"]
        assert torch.allclose(total, wanted, rtol=1e-5)
        parts = [*own.parameters(), *model.embeddings.word.parameters()]
        assert slopes_agree(total, wanted, parts)
        if cutoffs[0] > 1 and cutoffs[-1] < VOCAB - 1:  # a single word is certain within its cluster
            assert all(slope.abs().sum() > 0 for slope in torch.autograd.grad(total, parts))


def test_parameters_are_those_of_the_formula():
    plain, cutoffs = SYSTEMS["transformer_xl_base"], [20_000, 40_000, 200_000]
    clustered = plain.but(**{"objectives.lm.cutoffs": cutoffs})
    assert clustered.parameters() - plain.parameters() == 3 * 410 + 3
    plain = plain.but(**{"model.hidden_size": 512, "model.num_heads": 8})
    narrower = {"model.embedding_cutoffs": cutoffs, "model.embedding_divisor": 4}
    clustered = plain.but(**{"objectives.lm.cutoffs": cutoffs}, **narrower)
    widths, sizes = [512, 128, 32, 8], [20_000, 20_000, 160_000, 67_735]
    tables = sum(size * width for size, width in zip(sizes, widths, strict=True))
    extra = sum(512 * width for width in widths) + 512 * 512 + 3 * 512 + 3  # matrices, of the softmax, its clusters
    assert clustered.parameters() - plain.parameters() == tables + extra - 267_735 * 512


def test_flops_of_clusters_are_those_of_the_products():
    objective, own, model, example = adaptive((20, 35), 4, bias=True)
    settings, plain = settings_of((20, 35), 4), settings_of()
    counted = []
    for network in (model, plain.build(VOCAB).eval()):
        with FlopCounterMode(display=False) as counter:
            network(example)
        counted.append(counter.get_total_flops())
    assert counted[0] - counted[1] == 4 * (settings.flops_per_sequence(16) - plain.flops_per_sequence(16))
    target, encoded = example.targets["next"], model(example)
    target.where, target.ids = target.where[:VOCAB], torch.arange(VOCAB)  # every word is as frequent
    with FlopCounterMode(display=False) as counter:
        objective.loss(own, encoded, example)
    assert counter.get_total_flops() / VOCAB == pytest.approx(objective.flops_per_sequence(3, settings.size(VOCAB)))


def test_one_width_is_one_table():
    plain = SYSTEMS["gpt"].but(**{"objectives.lm.cutoffs": [20, 40]})
    same = plain.but(**{"model.embedding_cutoffs": [20, 40]})
    assert identity(same.essence()) == identity(plain.essence())
    one = settings_of(embedding_cutoffs=(20, 40), embedding_divisor=1).build(VOCAB)
    assert not isinstance(one.embeddings.word, ClusteredTable)


NARROW = {"objectives.lm.cutoffs": [20, 40], "model.embedding_cutoffs": [20, 40], "model.embedding_divisor": 4}
LM_CUTOFFS = "objectives.lm.cutoffs"


@every(
    ("changes", "words"),
    [
        ({**NARROW, "model.embedding_cutoffs": []}, ("embedding_divisor 4", "embedding_cutoffs", LM_CUTOFFS)),
        ({**NARROW, "model.embedding_cutoffs": [40, 20]}, ("embedding_cutoffs", "ascending", "[40, 20]")),
        ({**NARROW, "model.embedding_cutoffs": [20, 30]}, ("model.embedding_cutoffs [20, 30]", "[20, 40]", "the same")),
        ({**NARROW, "model.embedding_size": 128, "objectives.lm.transform": "bert"}, ("embedding_size 128", "null")),
        ({**NARROW, "model.embedding_divisor": 32}, ("embedding_divisor 32", "hidden_size 768", "3 clusters")),
        ({**NARROW, "objectives.mlm": {}, "objectives.lm": None, "model.direction": "both"},
         ("objectives.mlm", "set it to 1")),
        ({LM_CUTOFFS: [20, 20]}, ("cutoffs", "must be ascending ids above 0")),
        ({LM_CUTOFFS: [40, 20]}, ("cutoffs", "must be ascending ids above 0")),
        ({LM_CUTOFFS: [0, 20]}, ("cutoffs", "must be ascending ids above 0")),
        ({LM_CUTOFFS: [20, 64], "data.tokenizer.vocab_size": 64},
         ("cutoffs [20, 64]", "must be below data.tokenizer.vocab_size 64")),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        SYSTEMS["gpt"].but(**changes)


@every("name", ["gpt", "gpt2"])
def test_a_block_without_special_tokens_has_one_prediction_less_than_positions(name):
    system = SYSTEMS[name].but(
        **{
            "model.num_layers": 1, "model.hidden_size": 16, "model.num_heads": 2, "data.tokenizer.vocab_size": 64,
            "format.sequence_length": 16, "training.batch_size": 1, "training.steps": 1,
        }
    )  # fmt: skip
    assert system.flops() == 3 * (system.model.flops_per_sequence(16) + 15 * 2 * 16 * 64)


def test_what_a_missing_transform_would_have_is_no_part_of_the_identity():
    system = SYSTEMS["gpt"]
    for path, value in (("objectives.lm.activation", "relu"), ("objectives.lm.norm_eps", 1e-5)):
        assert identity(system.but(**{path: value}).essence()) == identity(system.essence())


WORDS, STATES, COUNT = 60, 8, 12


@pytest.fixture
def case():
    torch.manual_seed(0)
    states = torch.randn(COUNT, STATES, dtype=torch.double, requires_grad=True)
    table = torch.randn(WORDS, STATES, dtype=torch.double, requires_grad=True)
    return states, table, torch.randn(WORDS, dtype=torch.double), torch.randint(WORDS, (COUNT,))


def test_a_sample_of_all_words_is_the_exact_softmax(case):
    states, table, bias, ids = case
    sampled = SampledSoftmax(WORDS, WORDS).summed_loss(states, table, bias, ids)
    full = F.cross_entropy(states @ table.T + bias, ids, reduction="sum")
    assert torch.allclose(sampled.double(), full, rtol=1e-5)
    assert slopes_agree(sampled, full, [states, table])


def test_a_sample_has_the_expected_words_frequent_ones_more_often():
    for negatives in (5, 20, 45):
        chances = SampledSoftmax(WORDS, negatives).chances
        assert float(chances.sum()) == pytest.approx(negatives, rel=1e-4)
        assert (chances[1:] <= chances[:-1]).all()
        assert 0 < float(chances.min()) < float(chances.max()) <= 1


@torch.no_grad()
def test_the_expected_sum_over_words_is_the_exact_one(case):
    """exp(loss + right logit) is the sum over the sample, whose mean over many samples is that over all words."""
    states, table, bias, ids = case
    softmax, one = SampledSoftmax(WORDS, 30), [part[:1] for part in (states, ids)]
    right = float(states[0] @ table[ids[0]] + bias[ids[0]])
    sums = torch.tensor([float(softmax.summed_loss(one[0], table, bias, one[1])) + right for _ in range(4000)]).exp()
    full = (states[0] @ table.T + bias).exp().sum()
    spread = float(sums.std() / len(sums) ** 0.5)
    assert abs(float(sums.mean() - full)) < 4 * spread
    assert spread < 0.05 * float(full), "else the comparison says nothing"


def test_the_right_word_is_never_one_of_its_negatives(case, monkeypatch):
    """Every word is drawn; the right one still counts once, although its chance to be drawn is below 1."""
    states, table, bias, ids = case
    softmax = SampledSoftmax(WORDS, 40)
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    found = softmax.summed_loss(states, table, bias, ids)
    logits = states @ table.T + bias - softmax.chances.double().log()
    logits[torch.arange(COUNT), ids] += softmax.chances[ids].double().log()
    assert torch.allclose(found.double(), F.cross_entropy(logits, ids, reduction="sum"), rtol=1e-5)


def test_a_head_samples_while_it_trains_and_is_exact_otherwise(case):
    states, _, _, ids = case
    torch.manual_seed(0)
    head = VocabularyHead(Size(STATES, STATES, WORDS), "gelu", 1e-12, transform="none", negatives=5, tied=False)
    encoded, target = Encoded([], states.float()[None], torch.zeros(0, STATES)), Target(torch.arange(COUNT), ids)
    losses = [float(head.summed_loss(states.float(), encoded, target).detach()) for _ in range(3)]
    assert len(set(losses)) == 3
    head.eval()
    with torch.no_grad():
        full = F.cross_entropy(head(states.float(), encoded), ids, reduction="sum")
        assert float(head.summed_loss(states.float(), encoded, target)) == pytest.approx(float(full), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_held_out_measures_of_a_few_rows_at_a_time_are_those_of_all_of_them(monkeypatch, dtype):
    """In half precision several words are often equally probable: the first of them counts as the guess."""
    monkeypatch.setattr(heads, "_CACHED", 8 * VOCAB)
    for count in (0, 1, 7, 8, 61):
        noise = torch.Generator().manual_seed(count)
        states, table = torch.randn(count, 6, generator=noise), torch.randn(VOCAB, 6, generator=noise)
        logits = (4 * states @ table.T).round().to(dtype)
        best = logits.argmax(1)
        ties = (logits == logits.amax(1, keepdim=True)) & (torch.arange(VOCAB) > best[:, None])
        ids, sizes = torch.where(torch.arange(count) % 2 == 0, best, ties.int().argmax(1)), []

        def head(some, table=table, sizes=sizes):
            sizes.append(len(some))
            return (4 * some @ table.T).round().to(dtype)

        found = heads.heldout_measures(head, states, Target(torch.arange(count), ids), VOCAB, "next_")
        wanted = F.cross_entropy(logits.float(), ids, reduction="sum")
        assert found["next_loss"][0] == pytest.approx(float(wanted), rel=1e-5)
        assert found["next_accuracy"][0] == (best == ids).sum()
        assert found["next_loss"][1] == found["next_accuracy"][1] == count
        assert max(sizes, default=0) <= 8
    assert ties.any()
