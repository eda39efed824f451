"""AWD-LSTM: regularising and optimising LSTM language models (Merity et al. 2018), the model of WikiText-2.

Sections 3 to 5 of the paper and the released code: three LSTM layers of 1,150, 1,150 and 400 units over word
embeddings of 400, to which the output layer is tied; five dropouts; activation and temporal activation
regularisation; rows that go on from step to step, whose steps have lengths of their own; SGD at a rate of 30, by the
length of a step, and averaged from the evaluation on at which the held-out loss no longer falls. The model of the
Penn Treebank is a change of this one::

    AWD_LSTM.but(**{
        "data.tokenizer.vocab_size": 10_000, "model.input_dropout": 0.4, "training.batch_size": 40,
        "training.steps": 257_000,
    })

What differs:

* WikiText-2's training text is not to be had: Wikipedia replaces it, with as many pieces as that text has words
  (33,278).
* The paper trains for 750 epochs. The number of updates is computed from 2,088,628 words in 80 rows, 385 steps an
  epoch.
* The paper evaluates once an epoch. Here a training has at most 64 evaluations, so that the non-monotone interval of
  5 is longer.
* Steps have at most 95 positions, and on a GPU multiples of 8. What is left of a row at the end of a pass, less than
  the next step has, is not shown; the released code shows it as a shorter step.
* The bias of forget gates starts at 1 and other biases at 0; in the released code all are uniform as the weights are.
* The mean of NT-ASGD has the weights after its first step too, which torch's ASGD leaves out.
* The paper restarts NT-ASGD from the best weights (fine-tuning, its Table 4): a training that starts from another one
  (``training.start``) comes near to it. There is no cache of recent words.
"""

from lightning_modules.data import Data, StreamFormat, Tokenizer
from lightning_modules.evaluation import Evaluation
from lightning_modules.model import Recurrent
from lightning_modules.objectives import ActivationRegularization, LanguageModel, Objectives
from lightning_modules.system import System
from lightning_modules.training.optimizers import Optimizer, Schedule
from lightning_modules.training.settings import Training

AWD_LSTM = System(
    name="awd_lstm",
    paper="Merity et al. 2018, arXiv 1708.02182, sections 4 and 5, and released code (WikiText-2)",
    model=Recurrent(
        num_layers=3,
        hidden_size=1150,
        embedding_size=400,
        output_size=400,
        embedding_norm=False,
        embedding_dropout=0.0,
        dropout=0.0,
        word_type_dropout=0.1,
        input_dropout=0.65,
        weight_dropout=0.5,
        hidden_dropout=0.3,
        output_dropout=0.4,
        init="uniform",
        init_std=0.0577350269,  # uniform from -0.1 to 0.1
    ),
    objectives=Objectives(lm=LanguageModel(transform="none"), activations=ActivationRegularization()),
    format=StreamFormat(sequence_length=70, frame="document_ends", lengths="drawn"),
    data=Data(corpora=("wikipedia-2015",), tokenizer=Tokenizer(kind="wordpiece", vocab_size=33_278, lowercase=False)),
    optimizer=Optimizer(algorithm="sgd", peak_lr=30.0, weight_decay=1.2e-6, decay_all=True, nonmonotone_interval=5),
    schedule=Schedule(warmup_fraction=0.0, decay="constant", by_length=True),
    training=Training(steps=289_000, batch_size=80, clip_norm=0.25, precision="fp32"),
    evaluation=Evaluation(points=64),
)
