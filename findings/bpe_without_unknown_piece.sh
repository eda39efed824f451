#!/usr/bin/env bash
# A BPE tokenizer without an unknown piece drops letters and joins what was around them.
#
# Versions: tokenizers 0.23.3, Python 3.11.
# Seen: "zebra" is one piece, "er" at characters 0 to 2, where z, b and a were never seen. "zzz" is nothing.
# Expected: an error, as Unigram gives, or pieces of letters that stand next to each other.
# Here: every tokenizer has [UNK]. A loss per piece would flatter a model whose text lost its rare letters.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check tokenizers==0.23.3
cd "$folder"
env/bin/python - <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
trainer = trainers.BpeTrainer(vocab_size=60, show_progress=False)
tokenizer.train_from_iterator(["low lower newest widest"] * 50, trainer)
for text, pieces, offsets in (("zebra", ["er"], [(0, 2)]), ("zzz", [], [])):
    found = tokenizer.encode(text)
    print(text, found.tokens, found.offsets)
    assert (found.tokens, found.offsets) == (pieces, offsets)
PY
echo "as stated: $(basename "$0" .sh)"
