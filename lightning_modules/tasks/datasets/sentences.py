"""Tasks with one text or two beyond GLUE."""

from dataclasses import replace

from lightning_modules.data.corpora.reviews import HELD_OUT
from lightning_modules.tasks.readers.files import Files, Hub
from lightning_modules.tasks.readers.own_split import Held, Sampled, nearest
from lightning_modules.tasks.shapes.texts import Texts
from lightning_modules.tasks.task import Task

_NLI = ("entailment", "neutral", "contradiction")

_SNLI = Task(
    name="snli",
    title="SNLI: does the caption entail the sentence, contradict it, or neither?",
    source="Bowman et al. 2015, A large annotated corpus for learning natural language inference",
    shape=Texts(labels=_NLI, pair=True),
    rows=Files(
        "snli", label="gold_label", first="sentence1", second="sentence2", identifier="pairID", within="",
        train="snli_1.0_train.txt", dev="snli_1.0_dev.txt", unlabelled=("-", "-1"),
        hub=Hub("stanfordnlp/snli", None, "premise", "hypothesis"),
        otherwise=nearest("snli_own", "which divides the dev set in two"),
    ),
    licence="CC BY-SA 4.0",
    official=(549367, 9842),
)  # fmt: skip
ROWS = (
    _SNLI,
    replace(
        _SNLI,
        name="snli_own",
        title="SNLI, own split of the dev set: is the sentence entailed, contradicted, or neither?",
        rows=Held(Files("snli", label=2, first=0, second=1, train="dev.txt", within=""), share=0.2),
        own_split=(
            "four fifths of the captions of the dev set to train, a seventieth of the official size, lower-cased "
            "and without punctuation"
        ),
        official=None,
    ),
    Task(
        name="sst5",
        title="SST-5: how positive is the sentence of a film review, in five steps?",
        source="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality",
        shape=Texts(labels=("very negative", "negative", "neutral", "positive", "very positive")),
        rows=Files(
            "sst5", label=0, first=1, train="train.txt", dev="dev.txt", within="", hub=Hub("SetFit/sst5", None, "text")
        ),
        licence="no licence stated (film reviews, for research)",
        official=(8544, 1101),
    ),
    Task(
        name="imdb",
        title="IMDb: is the film review positive?",
        source="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis",
        shape=Texts(labels=("negative", "positive")),
        # it has a test set in place of a dev set; published scores are on that test set, which is not used here
        rows=Held(
            Files("imdb", label="label", first="text", train="train.jsonl", within="",
                  hub=Hub("stanfordnlp/imdb", None, "text")),
            share=HELD_OUT,
        ),
        licence="no licence stated (film reviews, for research)",
        own_split="a tenth of the 25,000 training reviews is held out, while published scores are on the test set",
    ),
    Task(
        name="imdb_test_5k",
        title="IMDb, 5,000 test reviews: is the film review positive?",
        source="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis",
        shape=Texts(labels=("negative", "positive"), tuned=True),
        rows=Sampled(
            Files("imdb", label="label", first="text", train="train.jsonl", dev="test.jsonl", within=""), count=5_000
        ),
        licence="no licence stated (film reviews, for research)",
        own_split="of the 25,000 test reviews 5,000 are scored, none of which is in the training set too",
    ),
)  # fmt: skip
