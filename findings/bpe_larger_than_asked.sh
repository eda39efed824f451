#!/usr/bin/env bash
# A trainer of byte-level BPE returns more pieces than it was asked for.
#
# Versions: tokenizers 0.23.3, Python 3.11.
# Seen: vocab_size=100 gives 256 pieces, without a warning.
# Expected: 100 pieces, or an error that names the smallest size.
# Here: a vocabulary below the bytes and the special pieces is refused, with the least size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check tokenizers==0.23.3
cd "$folder"
env/bin/python - <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
letters = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=100, initial_alphabet=letters, show_progress=False)
tokenizer.train_from_iterator(["a small text"] * 9, trainer)
print(tokenizer.get_vocab_size())
assert tokenizer.get_vocab_size() == 256
PY
echo "as stated: $(basename "$0" .sh)"
