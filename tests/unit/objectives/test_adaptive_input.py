"""Word embeddings of several widths, and the softmax that is tied to them: by formula, and as torch's own."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightning_modules.batch import Example
from lightning_modules.config import ConfigError, identity
from lightning_modules.model import Transformer
from lightning_modules.model.embeddings import ClusteredTable
from lightning_modules.objectives import LanguageModel
from lightning_modules.systems import SYSTEMS
from tests.conftest import make_draws, make_tokens, make_vocabulary
from tests.messages import naming

VOCAB, WIDTH = 50, 16
CASES = [((20, 35), 2, True), ((20, 35), 4, False), ((1,), 16, True), ((10, 11, 49), 2, True)]


def settings_of(cutoffs, divisor, **more):
    sizes = {"num_layers": 1, "hidden_size": WIDTH, "num_heads": 2, "direction": "left_to_right", "init_std": 0.3}
    return Transformer(**sizes).but(embedding_cutoffs=cutoffs, embedding_divisor=divisor, **more)


def built(cutoffs, divisor, bias, transform="none"):
    """A head with random biases, what a network gives, and the targets; both share the embeddings."""
    torch.manual_seed(0)
    settings = settings_of(cutoffs, divisor)
    model = settings.build(VOCAB).eval()
    objective = LanguageModel(transform=transform, bias=bias, cutoffs=cutoffs)
    heads = objective.heads(settings.size(VOCAB))
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    example = objective.corrupt(Example.of(make_tokens(4, 16, VOCAB)), make_draws(4), make_vocabulary(VOCAB))
    return objective, heads, model, example


@torch.no_grad()
@pytest.mark.parametrize(("cutoffs", "divisor", "bias"), CASES)
def test_a_word_has_the_vector_of_its_cluster_times_its_matrix(cutoffs, divisor, bias):
    *_, model, _ = built(cutoffs, divisor, bias)
    table = model.embeddings.word
    ids = torch.arange(VOCAB).view(5, 10)
    found = table(ids).flatten(0, 1)
    for word in range(VOCAB):
        cluster = sum(word >= cutoff for cutoff in cutoffs)
        vectors, matrix = model.clusters[cluster]
        assert vectors.shape[1] == WIDTH // divisor**cluster
        assert torch.allclose(found[word], matrix @ vectors[word - (0, *cutoffs)[cluster]], atol=1e-6)


@torch.no_grad()
def test_the_softmax_starts_with_small_weights():
    """Before training no word is far likelier than another of its cluster."""
    torch.manual_seed(0)
    model = settings_of((20, 35), 2).but(hidden_size=128, embedding_size=128)
    adaptive = LanguageModel(cutoffs=(20, 35)).heads(model.size(VOCAB))["vocabulary"].adaptive
    assert adaptive.projection.std() == pytest.approx(0.01, rel=0.05)
    assert adaptive.clusters.weight.std() == pytest.approx(0.02, rel=0.2)
    assert not adaptive.clusters.bias.any()


@torch.no_grad()
@pytest.mark.parametrize(("cutoffs", "divisor", "bias"), CASES)
def test_probabilities_by_the_formula_add_up_to_one(cutoffs, divisor, bias):
    """A word's is that of its cluster times its own within it; a tail is tied to vectors and matrix of the input."""
    objective, heads, model, example = built(cutoffs, divisor, bias)
    head, encoded = heads["vocabulary"], model(example)
    found = objective.logits(heads, encoded, example)
    states = encoded.at(example.targets["next"].where)
    biases = head.bias if bias else torch.zeros(VOCAB)
    (frequent, _), *tails = model.clusters
    own = states @ head.adaptive.projection
    first = torch.cat([own @ frequent.T + biases[: cutoffs[0]], head.adaptive.clusters(own)], 1).softmax(1)
    edges = (*cutoffs, VOCAB)
    for word in range(VOCAB):
        cluster = sum(word >= cutoff for cutoff in cutoffs)
        wanted = first[:, cutoffs[0] + cluster - 1 if cluster else word]
        if cluster:
            vectors, matrix = tails[cluster - 1]
            begin, end = edges[cluster - 1 : cluster + 1]
            scores = states @ matrix @ vectors.T + biases[begin:end]
            wanted = wanted * scores.softmax(1)[:, word - begin]
        assert torch.allclose(found[:, word].exp(), wanted, atol=1e-6)
    assert torch.allclose(found.exp().sum(1), torch.ones(len(found)), atol=1e-5)


@pytest.mark.parametrize(("cutoffs", "divisor", "bias"), CASES)
@pytest.mark.parametrize("transform", ["bert", "none"])
def test_the_loss_and_its_gradients_are_those_of_the_probabilities(cutoffs, divisor, bias, transform):
    objective, heads, model, example = built(cutoffs, divisor, bias, transform)
    encoded = model(example)
    wanted = -objective.logits(heads, encoded, example).gather(1, example.targets["next"].ids[:, None]).sum()
    total = objective.loss(heads, encoded, example)["next"]
    assert torch.allclose(total, wanted, rtol=1e-5)
    parts = [*heads.parameters(), *model.embeddings.word.parameters()]
    ours, theirs = (torch.autograd.grad(loss, parts, retain_graph=True) for loss in (total, wanted))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    if cutoffs[0] > 1 and cutoffs[-1] < VOCAB - 1:  # a single word is certain within its cluster
        assert all(slope.abs().sum() > 0 for slope in ours)


def test_parameters_are_those_of_the_formula():
    plain = SYSTEMS["transformer_xl_base"].but(**{"model.hidden_size": 512, "model.num_heads": 8})
    cutoffs, words = [20_000, 40_000, 200_000], 267_735
    clustered = plain.but(
        **{"objectives.lm.cutoffs": cutoffs, "model.embedding_cutoffs": cutoffs, "model.embedding_divisor": 4}
    )
    widths, sizes = [512, 128, 32, 8], [20_000, 20_000, 160_000, 67_735]
    tables = sum(size * width for size, width in zip(sizes, widths, strict=True))
    extra = sum(512 * width for width in widths) + 512 * 512 + 3 * 512 + 3  # matrices, of the softmax, its clusters
    assert clustered.parameters() - plain.parameters() == tables + extra - words * 512


def test_flops_are_those_of_the_products():
    cutoffs = (20, 35)
    settings = settings_of(cutoffs, 4)
    objective, heads, model, example = built(cutoffs, 4, bias=True)
    with FlopCounterMode(display=False) as counter:
        encoded = model(example)
    plain = settings_of((), 1).build(VOCAB).eval()
    with FlopCounterMode(display=False) as other:
        plain(example)
    more = settings.flops_per_sequence(16) - settings_of((), 1).flops_per_sequence(16)
    assert counter.get_total_flops() - other.get_total_flops() == 4 * more
    target = example.targets["next"]
    target.where, target.ids = target.where[:VOCAB], torch.arange(VOCAB)  # every word is as frequent
    with FlopCounterMode(display=False) as counter:
        objective.loss(heads, encoded, example)
    assert counter.get_total_flops() / VOCAB == pytest.approx(objective.flops_per_sequence(3, settings.size(VOCAB)))


def test_one_width_is_one_table():
    plain = SYSTEMS["gpt"].but(**{"objectives.lm.cutoffs": [20, 40]})
    same = plain.but(**{"model.embedding_cutoffs": [20, 40]})
    assert identity(same.essence()) == identity(plain.essence())
    assert not isinstance(settings_of((20, 40), 1).build(VOCAB).embeddings.word, ClusteredTable)


NARROW = {"objectives.lm.cutoffs": [20, 40], "model.embedding_cutoffs": [20, 40], "model.embedding_divisor": 4}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.embedding_cutoffs": []}, ("embedding_divisor 4", "embedding_cutoffs", "objectives.lm.cutoffs")),
        ({"model.embedding_cutoffs": [40, 20]}, ("embedding_cutoffs", "ascending", "[40, 20]")),
        ({"model.embedding_cutoffs": [20, 30]}, ("model.embedding_cutoffs [20, 30]", "[20, 40]", "the same")),
        ({"model.embedding_size": 128, "objectives.lm.transform": "bert"}, ("embedding_size 128", "null")),
        ({"model.embedding_divisor": 32}, ("embedding_divisor 32", "hidden_size 768", "3 clusters")),
        ({"objectives.mlm": {}, "objectives.lm": None, "model.direction": "both"}, ("objectives.mlm", "set it to 1")),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        SYSTEMS["gpt"].but(**{**NARROW, **changes})
