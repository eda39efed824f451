#!/usr/bin/env bash
# A perfect translation of fewer than four words has corpus BLEU 0 and sentence BLEU 100.
#
# Versions: sacrebleu 2.6.0, Python 3.11.
# Seen: "thank you ." against itself has 0.0 by corpus_bleu and 100.0 by sentence_bleu.
# Expected: the same for a corpus of one sentence as for the sentence.
# Here: BLEU of a corpus counts n-grams of all its sentences together. No average of sentences is shown.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check sacrebleu==2.6.0
cd "$folder"
env/bin/python - <<'PY'
import sacrebleu

text = "thank you ."
corpus = sacrebleu.corpus_bleu([text], [[text]]).score
sentence = sacrebleu.sentence_bleu(text, [text]).score
print(corpus, sentence)
assert corpus == 0
assert abs(sentence - 100) < 1e-6
PY
echo "as stated: $(basename "$0" .sh)"
