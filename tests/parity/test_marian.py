"""The Transformer against transformers' Marian, LayerNorm after each sub-layer, and Pegasus, LayerNorm before it."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from lightning_modules.objectives import LanguageModel
from lightning_modules.objectives.heads import vocabulary_head
from lightning_modules.objectives.lm import NEXT
from tests.translations import WORDS, asked, pairs, settings

_SHAPE = {
    "vocab_size": WORDS, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "max_position_embeddings": 32,
    "activation_function": "relu", "scale_embedding": True, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2, "init_std": 0.3,
}  # fmt: skip


def theirs_of(norm):
    shape = _SHAPE | {"decoder_ffn_dim": 24}
    if norm == "post":
        return MarianMTModel(MarianConfig(**shape))
    return PegasusForConditionalGeneration(PegasusConfig(**shape))


def copied(ours, theirs):
    """Pairs of parameters that are the same, ours first; a part of ours where theirs are several."""
    d, found = ours.width, [(ours.table, theirs.model.shared.weight)]
    for stack, other in ((ours.encoder, theirs.model.encoder), (ours, theirs.model.decoder)):
        for block, layer in zip(stack.blocks, other.layers, strict=True):
            kinds = {"attention": (layer.self_attn, layer.self_attn_layer_norm)}
            if "cross" in block:
                kinds["cross"] = (layer.encoder_attn, layer.encoder_attn_layer_norm)
            for kind, (attention, norm) in kinds.items():
                own = block[kind].function
                for place, part in enumerate((attention.q_proj, attention.k_proj, attention.v_proj)):
                    rows = slice(place * d, (place + 1) * d)
                    found += [(own.qkv.weight[rows], part.weight), (own.qkv.bias[rows], part.bias)]
                found += [(own.output.weight, attention.out_proj.weight), (own.output.bias, attention.out_proj.bias)]
                found += [(block[kind].norm.weight, norm.weight), (block[kind].norm.bias, norm.bias)]
            ffn = block["ffn"]
            for mine, part in (
                (ffn.function.expand, layer.fc1),
                (ffn.function.contract, layer.fc2),
                (ffn.norm, layer.final_layer_norm),
            ):
                found += [(mine.weight, part.weight), (mine.bias, part.bias)]
        if isinstance(stack.final_norm, torch.nn.LayerNorm):
            found += [
                (stack.final_norm.weight, other.layer_norm.weight),
                (stack.final_norm.bias, other.layer_norm.bias),
            ]
    return found


@pytest.fixture(params=["post", "pre"])
def models(request):
    torch.manual_seed(0)
    form = settings(
        num_layers=3,
        encoder_layers=2,
        norm=request.param,
        activation="relu",
        positions="sinusoidal",
        embedding_norm=False,
        embedding_scale=True,
        norm_eps=1e-5,
    )
    lm = LanguageModel(transform="none", bias=False)
    ours, heads, theirs = form.build(WORDS).double(), lm.heads(form.size(WORDS)), theirs_of(request.param).double()
    with torch.no_grad():
        for mine, other in copied(ours, theirs):
            torch.nn.init.normal_(other, std=0.3)
            mine.copy_(other)
        theirs.model.shared.weight[0] = ours.table[0] = torch.randn(16).double()  # padding has a row like any other
        for stack in (theirs.model.encoder, theirs.model.decoder):
            stack.embed_positions.weight.copy_(ours.embeddings.fixed[:32])
    return ours, heads, theirs.train(), lm


def test_logits_and_gradients(models):
    ours, heads, theirs, lm = models
    example = asked(pairs([5, 9, 2, 7], [8, 3, 6, 10]))
    target, source = example.targets[NEXT], example.source
    found = lm.logits(heads, ours(example), example)
    wanted = theirs(
        input_ids=source.ids,
        attention_mask=source.real.long(),
        decoder_input_ids=example.inputs.ids,
        decoder_attention_mask=example.inputs.real.long(),
    ).logits.flatten(0, 1)[target.where]
    assert torch.allclose(found, wanted, rtol=0, atol=1e-5)
    lm.loss(heads, ours(example), example)[NEXT].backward()
    torch.nn.functional.cross_entropy(wanted, target.ids, reduction="sum").backward()
    names = {id(p): p for p in ours.parameters()}
    checked = 0
    mine = {p.data_ptr(): p for p in names.values()}
    for part, other in copied(ours, theirs):
        whole = mine[part.untyped_storage().data_ptr()]
        gradient = whole.grad.as_strided(part.size(), part.stride(), part.storage_offset())
        assert torch.allclose(gradient, other.grad, rtol=0, atol=1e-5)
        checked += part.numel()
    assert checked == sum(p.numel() for p in ours.parameters()), "every parameter is compared"


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothed_labels_are_torchs_and_held_out_losses_have_none(models, smoothing):
    ours, heads, _, _ = models
    lm = LanguageModel(transform="none", bias=False, label_smoothing=smoothing)
    example = asked(pairs([5, 9, 2], [8, 3, 6]))
    encoded, target = ours(example), example.targets[NEXT]
    logits = lm.logits(heads, encoded, example)
    wanted = torch.nn.functional.cross_entropy(logits, target.ids, reduction="sum", label_smoothing=smoothing)
    found = lm.loss(heads, encoded, example)[NEXT]
    assert torch.allclose(found, wanted)
    gradients = [torch.autograd.grad(loss, ours.table, retain_graph=True)[0] for loss in (found, wanted)]
    assert torch.allclose(*gradients)
    held, count = lm.measure(heads, encoded, example)["next_loss"]
    plain = torch.nn.functional.cross_entropy(logits, target.ids, reduction="sum")
    assert torch.allclose(held.double(), plain, rtol=1e-5)
    assert count == len(target.ids)
    assert vocabulary_head(heads).bias is None
