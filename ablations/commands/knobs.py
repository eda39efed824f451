"""``ablations knobs``: finds a knob by a word of its path, its meaning, or the name that others have for it."""

from typing import Annotated, Any

import typer

from ablations.commands.terminal import As, Format, listing, reporting_errors

# What transformers, fairseq, Lightning and papers call it -> our knob, with the value where the name is one.
SPELLINGS = {
    "adam_beta2": "optimizer.beta2",
    "adam_epsilon": "optimizer.eps",
    "alibi": "model.positions=linear_bias",
    "attention_probs_dropout_prob": "model.attention_dropout",
    "d_model": "model.hidden_size",
    "gelu_new": "model.activation=gelu_tanh",
    "gradient_clip_val": "training.clip_norm",
    "hidden_act": "model.activation",
    "hidden_dropout_prob": "model.dropout",
    "intermediate_size": "model.ffn_size",
    "layer_norm_eps": "model.norm_eps",
    "learning_rate": "optimizer.peak_lr",
    "max_position_embeddings": "model.max_positions",
    "max_steps": "training.steps",
    "mem_len": "model.memory_length",
    "mlm_probability": "objectives.mlm.masking.rate",
    "n_embd": "model.hidden_size",
    "n_head": "model.num_heads",
    "n_layer": "model.num_layers",
    "num_attention_heads": "model.num_heads",
    "num_hidden_layers": "model.num_layers",
    "num_train_epochs": "finetuning.epochs",
    "num_warmup_steps": "schedule.warmup_fraction",
    "per_device_train_batch_size": "training.batch_size",
    "precision": "training.precision",
    "rope": "model.positions=rotary",
    "train_batch_size": "training.batch_size",
    "weight_decay": "optimizer.weight_decay",
}


def command(
    word: Annotated[
        str, typer.Argument(help="A word of its path, its meaning, or another library's name for it.")
    ] = "",
    form: As = Format.table,
) -> None:
    """Finds knobs: where each is set, its default, its meaning, and what others call it."""
    from ablations.schema.grid import FINETUNING
    from lightning_modules.config import ConfigError, did_you_mean, flat, paths
    from lightning_modules.system import System
    from lightning_modules.systems import ROBERTA_BASE
    from lightning_modules.tasks.settings import FineTuning

    with reporting_errors():
        known = paths(System) | {FINETUNING + path: field for path, field in paths(FineTuning).items()}
        usual = flat(ROBERTA_BASE.resolved()) | {FINETUNING + path: v for path, v in flat(FineTuning()).items()}
        sought, rows = word.lower(), list[dict[str, Any]]()
        for path, field in known.items():
            meaning = field.description or ""
            named = {name: ours.partition("=")[2] for name, ours in SPELLINGS.items() if ours.partition("=")[0] == path}
            if meaning and sought in " ".join([path, meaning, *named]).lower():
                others = ", ".join(f"{name} ({value})" if value else name for name, value in named.items())
                default = usual.get(path, "")
                rows.append({"knob": path, "of roberta_base": default, "others": others, "meaning": meaning})
        if not rows:
            names = {path.rpartition(".")[2] for path in known} | SPELLINGS.keys()
            raise ConfigError([f"no knob has '{word}' in its path or meaning.{did_you_mean(word, names)}"])
        listing(rows, form, "knob")
