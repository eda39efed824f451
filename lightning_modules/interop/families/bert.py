"""BERT: Devlin et al. (2019)."""

from lightning_modules.interop.families.family import BASE, CLASSIFIER, MLM, POOLER, Family, classes

BERT = Family(
    name="bert",
    heads={
        MLM: "cls.predictions",
        f"{MLM}.dense": "cls.predictions.transform.dense",
        f"{MLM}.norm": "cls.predictions.transform.LayerNorm",
        POOLER: "bert.pooler.dense",
        CLASSIFIER: "cls.seq_relationship",
    },
    tasks=classes("Bert", *[{"pooler": "bert.pooler.dense", "output": "classifier"}] * 2),
    architectures=("BertForPreTraining", "BertForMaskedLM", "BertModel"),
    defaults=BASE | {"vocab_size": 30_522},
    specials={"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    suits=lambda system: True,  # tried last
)
