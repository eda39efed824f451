"""A language model whose answers are known: the next word depends on the last one alone, by a table written here."""

import json
from pathlib import Path

import torch
from torch import nn

from lightning_modules.batch import Encoded, Example
from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import SPECIALS
from lightning_modules.generation.language_model import LanguageModelOf
from lightning_modules.objectives.lm import LanguageModel


class _Backbone(nn.Module):
    """Whose states are the ids that it read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, example: Example) -> Encoded:
        ids = example.inputs.ids[..., None].float()
        return Encoded(layers=[ids], last=ids, table=torch.zeros(1, 1))


class _Table(LanguageModel):
    """Whose logits are rows of a table of log-probabilities."""

    def logits(self, heads, encoded, example, name="next"):
        return heads["table"].weight[encoded.at(example.targets[name].where)[:, 0].long()]


def encoder(folder: Path, words: list[str]) -> Encoder:
    """A tokenizer of whole lower-case words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    names = [*SPECIALS, *words]
    fast = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    path = folder / "words.json"
    path.write_text(json.dumps(json.loads(fast.to_str())))
    return Encoder(path, "wordpiece")


def model(folder: Path, words: list[str], follows: dict[str, dict[str, float]], positions: int = 32) -> LanguageModelOf:
    """A model where after a word come others with the given probabilities; the rest is shared by all."""
    made = encoder(folder, words)
    number = {piece: n for n, piece in enumerate(made.vocabulary.pieces)}
    table = torch.full((len(number), len(number)), 1.0 / len(number))
    for word, chances in follows.items():
        rest = (1 - sum(chances.values())) / (len(number) - len(chances))
        table[number[word]] = rest
        for after, chance in chances.items():
            table[number[word], number[after]] = chance
    head = nn.Embedding.from_pretrained(table.log())
    return LanguageModelOf(
        backbone=_Backbone(),
        heads=nn.ModuleDict({"table": head}),
        objective=_Table(),
        encoder=made,
        start=(made.vocabulary.cls,),
        end=made.vocabulary.sep,
        direction="left_to_right",
        max_positions=positions,
    )
