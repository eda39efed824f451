"""The metrics of a run: the names that grids, claims and tables use, with descriptions."""

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
    "heldout.pairs_loss": "mean loss of the predictions on held-out pairs of segments of one text, nats",
    "heldout.pairs_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.pairs_next_loss": "mean loss of next tokens on the same pairs, nats",
    "heldout.pairs_next_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.pairs_previous_loss": "mean loss of previous tokens on the same pairs, nats",
    "heldout.pairs_previous_accuracy": "share of those predictions that are correct, 0 to 1",
    "heldout.nsp_accuracy": "share of correct held-out pairs: does the second segment follow, or is it from elsewhere?",
    "heldout.nsp_majority": "the same share for the majority class",
    "heldout.nsp_bow": "the same share for a linear classifier of word counts",
    "heldout.nsp_overlap": "the same share for the shared words of both segments",
    "heldout.sop_accuracy": "share of correct held-out pairs: are the two segments in order, or swapped?",
    "heldout.sop_majority": "the same share for the majority class",
    "heldout.sop_bow": "the same share for a linear classifier of word counts",
    "heldout.sop_overlap": "the same share for the shared words of both segments",
    "heldout.plateau": "whether the model is no better than the bigram baseline",
    "layers.angle": "angle between input and output of a layer, degrees, mean over layers",
    "layers.distance": "L2 distance between input and output of a layer, mean over layers",
    "layers.angle_change": "mean absolute difference of that angle between neighbouring layers, degrees",
    "layers.distance_change": "mean absolute difference of that distance between neighbouring layers",
    "layers.last_angle": "that angle at the last layer, degrees",
    "layers.last_distance": "that distance at the last layer",
    "train.loss": "mean training loss since the last measurement, nats",
    "glue.bert_average": "mean of the nine scores of BERT's Table 1, on dev sets: both of MNLI, F1 of QQP and MRPC, "
    "Spearman of STS-B, Matthews of CoLA, no WNLI; 0 to 1",
    "glue.average": "mean over the nine tasks of GLUE, on dev sets, each by the mean of its measures; 0 to 1",
    "tasks.mean": "plain mean of the main metric of each task at this scale, no published average; 0 to 1",
}
PLATEAU = "heldout.plateau"
COST = "cost."  # prefix of metrics that are entries of a record's cost
EXACT = {  # metrics without noise: the same in every seed
    "cost.parameters": "trainable parameters",
    "cost.tokens": "tokens presented in training",
    "cost.flops": "floating-point operations of training",
}
COSTS = EXACT | {"cost.seconds": "seconds of training", "cost.tokens_per_second": "tokens presented per second"}
HELDOUT = ("heldout.loss", "heldout.next_loss", "heldout.previous_loss")  # of masked models, of one-directional models
