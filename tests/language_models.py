"""Small left-to-right language models with random weights and a tokenizer of their own, trained on text made here."""

from pathlib import Path

from lightning_modules.data.text.encode import Encoder
from lightning_modules.data.text.tokenizer import Tokenizer, train
from lightning_modules.generation.language_model import LanguageModelOf, of_training
from lightning_modules.system import System
from lightning_modules.systems import SYSTEMS

SENTENCES = [
    "The water is transparent and the winds are strong tonight .", "A van waits near the water , and the van is old .",
    "Strong winds tonight : the old van is near the transparent water !", "Winds are strong , waters are near .",
    "Every morning somebody walks along the river before breakfast and counts the boats .",
    "Her brother plays chess with the baker ; his cousin reads quietly behind a green window .",
    "Quick foxes jump over lazy dogs while zebras drink from pools of clear mountain water .",
] * 4  # fmt: skip
RANDOM = {  # weights so large that predictions are sharp
    "model.num_layers": 2, "model.hidden_size": 32, "model.num_heads": 4, "model.init_std": 0.3,
}  # fmt: skip


def system(**changes) -> System:
    """A left-to-right language model of BERT's form."""
    form = {
        "objectives.mlm": None, "objectives.sentence": None, "objectives.lm.direction": "left_to_right",
        "model.direction": "left_to_right", "format.kind": "full_sentences", "format.sequence_length": 32,
        "model.max_positions": 64, "data.tokenizer.vocab_size": 80, "data.tokenizer.kind": "wordpiece",
    }  # fmt: skip
    return SYSTEMS["bert_base"].but(**{**form, **RANDOM, **changes})


def encoder(folder: Path, settings: Tokenizer) -> Encoder:
    """A tokenizer trained on ``SENTENCES``."""
    path = folder / f"{settings.kind}.json"
    path.write_text(train(settings, SENTENCES).to_str(), encoding="utf-8")
    return Encoder(path, settings.kind)


def model(folder: Path, seed: int = 0, **changes) -> LanguageModelOf:
    """A language model with random weights."""
    chosen = system(**changes)
    return of_training(chosen.build(seed), chosen, encoder(folder, chosen.data.tokenizer))
