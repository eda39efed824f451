"""The metrics of a run: the names that grids, claims and tables use, with descriptions."""

import re
from typing import Literal

TRANSLATORS = {  # method without a network -> what it is called
    "copy": "the source, copied",
    "nearest": "the nearest training source, its translation",
    "word_by_word": "words one by one, IBM model 1",
    "best_simple": "the best of these simple methods",
}

_PAIRS = {  # ending of a metric of held-out pairs -> whose share of correct answers it is
    "majority": "the majority class",
    "lengths": "a linear classifier of the lengths of both segments",
    "edges": "a linear classifier of lengths, edges and first and last pieces",
    "starts": "a linear classifier of which segment begins or ends a document",
    "corpora": "a linear classifier of the corpora of both segments",
    "overlap": "the shared words of both segments",
    "boundary": "the words shared across the boundary, next to it and at the far ends",
    "bow": "a linear classifier of word counts",
    "together": "a linear classifier of all of these",
    "best_simple": "the best of these simple methods",
}


def _asked(name: str, question: str) -> dict[str, str]:
    auc = "area under the ROC curve"
    return {
        f"heldout.{name}_accuracy": f"share of correct held-out pairs: {question}",
        f"heldout.{name}_pairs": "number of these pairs (of matched ones, perhaps fewer than the number set)",
        f"heldout.{name}_auc": f"{auc} on the same pairs: how often one of label 1 scores above one of label 0",
        **{f"heldout.{name}_{ending}": f"the same share for {method}" for ending, method in _PAIRS.items()},
        f"heldout.{name}_best_simple_auc": f"the highest {auc} of these simple methods",
    }


def _scored(name: str, text: str) -> dict[str, str]:
    of_methods = {f"heldout.{name}_{method}": f"the same for {told}" for method, told in TRANSLATORS.items()}
    return {f"heldout.{name}": text} | of_methods


METRICS: dict[str, str] = {
    "heldout.loss": "mean loss of the predictions on held-out text, nats",
    "heldout.accuracy": "share of correct held-out predictions, 0 to 1",
    "heldout.unigram_loss": "the same loss of the unigram baseline: word frequencies alone, nats",
    "heldout.bigram_loss": "the same loss of the bigram baseline: counts of left and right neighbours, nats",
    "heldout.next_loss": "mean loss of next tokens on held-out text, given the tokens on their left, nats",
    "heldout.next_accuracy": "share of next tokens predicted correctly, 0 to 1",
    "heldout.next_unigram_loss": "the same loss of the unigram baseline: word frequencies alone, nats",
    "heldout.next_bigram_loss": "the same loss of the bigram baseline: counts of left neighbours, nats",
    "heldout.previous_loss": "mean loss of previous tokens on held-out text, given the tokens on their right, nats",
    "heldout.previous_accuracy": "share of previous tokens predicted correctly, 0 to 1",
    "heldout.previous_unigram_loss": "the same loss of the unigram baseline: word frequencies alone, nats",
    "heldout.previous_bigram_loss": "the same loss of the bigram baseline: counts of right neighbours, nats",
    "heldout.next_word_loss": "mean loss of next words on held-out text, rare ones as one, given those before, nats",
    "heldout.next_word_accuracy": "share of next words predicted correctly, rare ones as one, 0 to 1",
    "heldout.previous_word_loss": "mean loss of previous words on held-out text, rare ones as one, given later ones",
    "heldout.previous_word_accuracy": "share of previous words predicted correctly, rare ones as one, 0 to 1",
    "heldout.word_perplexity": "mean of the perplexities of next and previous words, or that of one direction",
    "heldout.permuted_loss": "mean loss of the same hidden tokens in a random order, each given those before it, nats",
    "heldout.permuted_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.permuted_unigram_loss": "the same loss of the unigram baseline: word frequencies alone, nats",
    "heldout.permuted_bigram_loss": "the same loss of the bigram baseline: counts of neighbours that are seen, nats",
    "heldout.translated_loss": "loss of hidden tokens of a held-out sentence next to its translation, nats",
    "heldout.mistranslated_loss": "loss of the same tokens next to the translation of another sentence, nats",
    "heldout.translation_gain": "how much the translation says of them: the second of these minus the first, nats",
    "heldout.joint_loss": "loss of two neighbouring hidden tokens of different words together, nats. Of a masked model "
    "it is the sum over both, each alone, of permuted prediction that in a random order",
    "heldout.joint_alone_loss": "the sum of their losses, each from the context alone, nats",
    "heldout.joint_filled_loss": "the same of one from the context alone and the other with the first filled in, mean "
    "over both orders, nats",
    "heldout.nats_per_byte": "heldout.loss over the bytes (UTF-8) of the text behind its predictions, nats per byte",
    "heldout.bigram_nats_per_byte": "the same of the bigram baseline, nats per byte",
    "heldout.next_nats_per_byte": "heldout.next_loss over the bytes of the text behind its predictions, nats per byte",
    "heldout.next_bigram_nats_per_byte": "the same of the bigram baseline, nats per byte",
    "heldout.previous_nats_per_byte": "heldout.previous_loss over the bytes behind its predictions, nats per byte",
    "heldout.previous_bigram_nats_per_byte": "the same of the bigram baseline, nats per byte",
    "heldout.word_nats_per_byte": "loss of whole hidden words over their bytes, the same words for every tokenizer, "
    "nats per byte. Pieces count from left to right, and their number at its entropy",
    "heldout.word_first_loss": "loss of the first piece of a hidden word among pieces that begin one, nats per word",
    "heldout.word_bigram_nats_per_byte": "the same of the bigram baseline, nats per byte",
    "heldout.word_length_nats_per_byte": "the part of both that the numbers of pieces cost, nats per byte",
    "heldout.word_unknown": "share of these words with an unknown piece, 0 to 1",
    "heldout.words": "number of these words",
    "heldout.pairs_loss": "mean loss of the predictions on held-out pairs of segments of one text, nats",
    "heldout.pairs_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.pairs_next_loss": "mean loss of next tokens on the same pairs, nats",
    "heldout.pairs_next_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.pairs_previous_loss": "mean loss of previous tokens on the same pairs, nats",
    "heldout.pairs_previous_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.pairs_permuted_loss": "mean loss of those hidden tokens in a random order, nats",
    "heldout.pairs_permuted_accuracy": "share of those predictions that are correct, 0 to 1",
    **_asked("nsp", "does the second segment follow, or is it from elsewhere?"),
    **_asked("sop", "are the two segments in order, or swapped?"),
    "heldout.sentence_accuracy": "heldout.nsp_accuracy of a run trained on random negatives, "
    "heldout.sop_accuracy of one trained on swapped ones: the question that its sentence objective asks",
    "heldout.sentence_majority": "the same share for the majority class",
    **_scored("bleu", "BLEU of translations of held-out sources, cased and detokenised (sacrebleu), 0 to 100"),
    "heldout.bleu_short": "the same for the third of the sources with the fewest words",
    "heldout.bleu_middle": "the same for the middle third of the sources by words",
    "heldout.bleu_long": "the same for the third of the sources with the most words",
    "heldout.bleu_long_minus_short": "BLEU of the third with the most words minus that of the third with the fewest",
    **_scored("chrf", "chrF of these translations (sacrebleu), 0 to 100"),
    "heldout.translations": "number of these translations",
    "heldout.translation_length": "words of these translations over those of the references",
    "heldout.copied_words": "share of their words that the source has and the reference lacks, 0 to 1",
    "heldout.repeated_bigrams": "share of their pairs of neighbouring words that the translation had before, 0 to 1",
    "heldout.repeated_bigrams_reference": "the same share of the references, 0 to 1",
    "heldout.plateau": "whether the model is no better than the bigram baseline",
    "layers.angle": "angle between input and output of a layer, degrees, mean over layers",
    "layers.distance": "L2 distance between input and output of a layer, mean over layers",
    "layers.angle_change": "mean absolute difference of that angle between neighbouring layers, degrees",
    "layers.distance_change": "mean absolute difference of that distance between neighbouring layers",
    "layers.first_angle": "that angle at the first layer, degrees",
    "layers.first_distance": "that distance at the first layer",
    "layers.later_angle": "that angle, degrees, mean over all layers but the first",
    "layers.later_distance": "that distance, mean over all layers but the first",
    "layers.last_angle": "that angle at the last layer, degrees",
    "layers.last_distance": "that distance at the last layer",
    "train.loss": "mean training loss since the last measurement, nats",
    "glue.bert_average": "mean of the nine scores of BERT's Table 1, on dev sets, 0 to 1. These are both of MNLI, F1 "
    "of QQP and MRPC, Spearman of STS-B and Matthews of CoLA, without WNLI",
    "glue.average": "mean over the nine tasks of GLUE, on dev sets, each by the mean of its measures, 0 to 1",
    "tasks.mean": "plain mean of the main metric of each task at this scale, no published average, 0 to 1",
}
LABELS = {  # the heading of a column, where a grid names no other
    "bigram_shift.accuracy": "bigram shift accuracy",
    "cola.matthews": "CoLA Matthews correlation",
    "cost.parameters": "parameters",
    "gap.f1": "GAP coreference F1",
    "heldout.accuracy": "held-out accuracy at 15 %",
    "heldout.bleu": "BLEU",
    "heldout.bleu_long_minus_short": "BLEU of long minus short sources",
    "heldout.chrf": "chrF",
    "heldout.joint_alone_loss": "two neighbours, each alone (nats)",
    "heldout.joint_loss": "two neighbours together (nats)",
    "heldout.loss": "held-out loss at 15 % (nats)",
    "heldout.next_accuracy": "held-out next-token accuracy",
    "heldout.next_loss": "held-out next-token loss (nats)",
    "heldout.nsp_accuracy": "accuracy on random pairs",
    "heldout.nsp_auc": "AUC on random pairs",
    "heldout.pairs_accuracy": "masked-LM accuracy in pairs",
    "heldout.pairs_loss": "masked-LM loss in pairs (nats)",
    "heldout.permuted_loss": "the same tokens in a random order (nats)",
    "heldout.sop_accuracy": "accuracy on swapped pairs",
    "heldout.sop_auc": "AUC on swapped pairs",
    "heldout.translation_gain": "gain from the translation (nats)",
    "heldout.word_first_loss": "loss of first pieces of words (nats)",
    "heldout.word_nats_per_byte": "held-out loss of whole words (nats per byte)",
    "heldout_stream.accuracy": "held-out next-token accuracy",
    "heldout_stream.loss": "held-out next-token loss (nats)",
    "mnli.accuracy": "MNLI-m accuracy",
    "mrpc.accuracy": "MRPC accuracy",
    "mrpc.f1": "MRPC F1",
    "probes.agreement": "probe of agreement",
    "probes.distance": "distance of two words",
    "probes.mean_gain": "mean gain of the probes",
    "probes.multi30k_de": "captions, German, half-way up",
    "probes.multi30k_de_last": "captions, German: accuracy",
    "probes.own_pairs": "held-out pairs, half-way up",
    "probes.own_pairs_last": "held-out pairs: accuracy",
    "probes.pronoun_case": "probe of pronoun case",
    "probes.snli": "probe of SNLI",
    "probes.tatoeba_de": "Tatoeba, German, half-way up",
    "probes.tatoeba_de_last": "Tatoeba, German: accuracy",
    "qnli.accuracy": "QNLI accuracy",
    "qnli_own.accuracy": "QNLI (own) accuracy",
    "race.accuracy": "RACE accuracy",
    "race_middle.accuracy": "RACE (middle) accuracy",
    "rte.accuracy": "RTE accuracy",
    "squad1.f1": "SQuAD 1.1 F1",
    "squad1_own.f1": "SQuAD 1.1 (own) F1",
    "squad2.f1": "SQuAD 2.0 F1",
    "squad2_own.f1": "SQuAD 2.0 (own) F1",
    "sst2.accuracy": "SST-2 accuracy",
    "sst2_dev_test.accuracy": "SST-2 (dev + test) accuracy",
    "stsb.pearson": "STS-B correlation",
    "stsb.spearman": "STS-B rank correlation",
    "tasks.mean": "mean of the tasks",
    "wnut17.entity_f1": "WNUT-17 entity F1",
}
PLATEAU = "heldout.plateau"
ASKED_OF = {"random": "nsp", "swapped": "sop"}  # `format.negatives` -> the question about pairs that training asks
COST = "cost."  # prefix of metrics that are entries of a record's cost
EXACT = {  # metrics without noise: the same in every seed
    "cost.parameters": "trainable parameters",
    "cost.tokens": "tokens presented in training",
    "cost.flops": "floating-point operations of training",
}
COSTS = EXACT | {
    "cost.real_tokens": "tokens presented in training without padding",
    "cost.seconds": "seconds of training",
    "cost.cpu_seconds": "processor seconds of training",
    "cost.tokens_per_second": "tokens presented per second",
    "cost.heldout_tokens_per_second": "tokens of a held-out stream that are predicted per second, read as evaluation.* "
    "says (on a CPU, of processor time)",
}
HELDOUT = ("heldout.loss", "heldout.next_loss", "heldout.previous_loss")  # of masked models, of one-directional models
BY_SEQUENCE = (*HELDOUT, "heldout.joint_loss", "heldout.joint_alone_loss", "heldout.joint_filled_loss")  # kept for each
TRANSLATED = ("heldout.bleu", "heldout.chrf")  # which simple methods have too
PER_BYTE = "nats_per_byte"  # ending of losses per byte of the original text
WORDS = (
    "heldout.word_",
    "heldout.words",
)  # beginnings of metrics of hidden words that are the same for every tokenizer

_LOWER = re.compile(  # beginnings and ends of what is better when lower
    r"train\.|layers\.|cost\.(?!.*per_second)|.*(loss|nats_per_byte|perplexity|copied_words|repeated_bigrams)$"
)


def better(metric: str) -> Literal["lower", "higher"]:
    """The direction in which a metric is better: a loss or a cost when lower, a score when higher."""
    return "lower" if _LOWER.match(metric) else "higher"
