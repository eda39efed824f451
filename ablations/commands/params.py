"""Commands on knobs: ``params`` counts what they make, next to published counts, and ``knobs`` finds them."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablations.commands.terminal import As, Format, In, Notation, echo, listing, plain, reporting_errors, values

# What transformers, fairseq, Lightning and papers call it -> our knob, with the value where the name is one.

if TYPE_CHECKING:
    from lightning_modules.system import System


def command(
    system: Annotated[
        str | None, typer.Argument(help="A system or a published configuration. Default: all published ones.")
    ] = None,
    set: Annotated[list[str] | None, typer.Option("--set", help="knob=value: changes the system. Repeatable.")] = None,
    task: Annotated[str, typer.Option("--task", help="Count the network that is fine-tuned on this task.")] = "",
    form: In = Notation.table,
) -> None:
    """Shows published parameter counts and ours, or the parameters of one system by part, its FLOPs and knobs."""
    with reporting_errors():
        changes = values(set, "--set")
        if system is None:
            if changes or task:
                raise typer.BadParameter(f"{'--set changes' if changes else '--task fine-tunes'} one system. Name it.")
            _print_published(form)
        elif task:
            listing(_of_task(_named(system), task, changes), plain(form, "one system"), "part")
        else:
            _print_system(_named(system).but(**changes), plain(form, "one system"))


def _print_published(form: Notation) -> None:
    if form is Notation.table or form is Notation.json or form is Notation.names:
        listing(_published(Format(form.value)), Format(form.value), "configuration")
        return
    from ablations.literature import configurations, parameters
    from ablations.pages import parameters_page, tables

    sheets = parameters_page.sheets(configurations.read(), parameters.comparisons())
    echo(tables.rendered(sheets, form.name), nl=False)


def _published(form: Format) -> list[dict[str, Any]]:
    from ablations.literature import parameters
    from ablations.literature.configurations import read

    rows: list[dict[str, Any]] = []
    for comparison in parameters.comparisons():
        item = comparison.configuration
        row: dict[str, Any] = {"configuration": item.id, "paper": f"{item.paper}, {item.table}", "name": item.name}
        if form is Format.json:
            row |= {"printed": item.printed, "includes": item.includes, "counted": comparison.counted}
            row |= {"encoder": comparison.encoder, "pooler": comparison.pooler, "heads": comparison.heads}
            row |= {"deviation": comparison.deviation, "flops_per_token": comparison.flops_per_token}
        else:
            row |= {"printed (M)": item.printed, "counted (M)": parameters.millions(comparison.counted)}
            row |= {"counted are": item.includes, "%": parameters.percent(comparison.deviation)}
        rows.append(row | {"why they differ": comparison.reason})
    blank = dict.fromkeys(rows[0], None if form is Format.json else "")
    for item in read().absent:
        printed = {"printed" if form is Format.json else "printed (M)": item.printed}
        known = {"configuration": item.id, "paper": f"{item.paper}, {item.table}", "name": item.name}
        rows.append(blank | known | printed | {"why they differ": f"cannot be built yet: {item.missing}"})
    return rows


def _named(name: str) -> "System":
    from ablations.literature.configurations import named
    from lightning_modules.systems import SYSTEMS

    return SYSTEMS[name] if name in SYSTEMS else named(name).system


def _of_task(system: "System", task: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the network that is fine-tuned on a task, under ``finetuning.*`` knobs."""
    from ablations.planning.afterwards import finetuning
    from ablations.schema.grid import FINETUNING
    from lightning_modules.finetuning.run import FinetuningRun
    from lightning_modules.tasks import task_named

    task_named(task)
    tuning = {path: value for path, value in changes.items() if path.startswith(FINETUNING)}
    changed = system.but(**{path: value for path, value in changes.items() if path not in tuning})
    parts = FinetuningRun(changed, task, finetuning(tuning, task), 0, None).parameters_by_part()
    return [{"part": part, "parameters": f"{n:,}"} for part, n in [*parts.items(), ("all", sum(parts.values()))]]


def _print_system(system: "System", form: Format) -> None:
    from ablations.core.formatting import quantity
    from lightning_modules.config import flat, paths
    from lightning_modules.footprint import exchanged

    docs, knobs = paths(type(system)), flat(system.resolved())
    if form is Format.table:
        rows = [{"part": part, "parameters": f"{count:,}"} for part, count in system.parameters_by_part().items()]
        listing([*rows, {"part": "all", "parameters": f"{system.parameters():,}"}], form, "part")
        if saved := ", ".join(f"{path} {quantity(count)}" for path, count in savings(system)):
            echo(f"  Parameters that half of a knob would save: {saved}")
        gradients = exchanged(system)
        for line in _printed(system):
            echo(f"  {line}")
        what = "moments" if system.moments == system.optimizer.moments else "moments and means"
        weights, moments = (f"{count / 1e6:,.1f} MB" for count in (gradients, system.moments * gradients))
        echo(
            f"  {weights} of weights, {weights} of gradients, {moments} of {what} ({system.optimizer.algorithm}). "
            f"Devices that share a training sum up {weights} of gradients per step"
        )
        means = ", means over steps of several lengths" * (len(system.shown()) > 1)
        echo(
            f"  {quantity(system.flops_per_token())} FLOPs per token, {quantity(system.flops_per_step())} per step "
            f"of {quantity(system.tokens_per_step())} tokens, forward and backward{means}"
        )
    listing([{"knob": k, "value": v, "meaning": docs[k].description or ""} for k, v in knobs.items()], form, "knob")


def savings(system: "System") -> list[tuple[str, int]]:
    """The three knobs of which half saves most parameters, and how many, from most to least."""
    from lightning_modules.config import ConfigError, flat

    saved: dict[str, int] = {}
    for path, value in flat(system).items():
        sizes = value if isinstance(value, tuple) else (value,)
        if not path.startswith(("model.", "data.tokenizer.vocab_size")) or not all(type(one) is int for one in sizes):
            continue
        half = [max(1, one // 2) for one in sizes]
        with contextlib.suppress(ConfigError):
            smaller = system.but(**{path: half if isinstance(value, tuple) else half[0]})
            saved[path] = system.parameters() - smaller.parameters()
    return sorted(((path, count) for path, count in saved.items() if count > 0), key=lambda item: -item[1])[:3]


def _printed(system: "System") -> list[str]:
    """A line for each published configuration with exactly this network."""
    from ablations.literature import parameters
    from ablations.literature.configurations import read

    lines = []
    for item in read().configurations:
        if item.printed and _network(item.system) == _network(system):
            comparison = parameters.compare(item)
            counted, deviation = parameters.millions(comparison.counted), parameters.percent(comparison.deviation)
            lines.append(
                f"{item.paper}, {item.table} prints {item.printed} M: {counted} M counted "
                f"({parameters.PARTS[item.includes]}), {deviation} %. {comparison.reason}".rstrip()
            )
    return lines


def _network(system: "System") -> tuple[Any, ...]:
    return system.model.resolved(), system.data.tokenizer.vocab_size


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


def knobs(
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
