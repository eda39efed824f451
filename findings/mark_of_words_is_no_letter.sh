#!/usr/bin/env bash
# SentencePiece gives the mark of words back as a space.
#
# Versions: sentencepiece 0.2.3, Python 3.11.
# Seen: the letters "ab", U+2581 and "cd" come back as "ab cd", without an unknown piece.
# Expected: the text as it was, or an unknown piece in the place of the mark.
# Here: unigram pieces have a trainer and a pre-tokenizer of our own, and numbers do not rest on decoded text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check sentencepiece==0.2.3
cd "$folder"
env/bin/python - <<'PY'
import random

import sentencepiece

draw = random.Random(0)
words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 7))) for _ in range(600)]
with open("text.txt", "w") as file:
    file.writelines(" ".join(draw.choices(words, k=8)) + "\n" for _ in range(4000))
options = {"model_prefix": "small", "vocab_size": 300, "minloglevel": 2}
sentencepiece.SentencePieceTrainer.train(input="text.txt", **options)
model = sentencepiece.SentencePieceProcessor(model_file="small.model")
ids = model.encode("ab\u2581cd")
print(repr(model.decode(ids)))
assert model.decode(ids) == "ab cd"
assert model.unk_id() not in ids
PY
echo "as stated: $(basename "$0" .sh)"
