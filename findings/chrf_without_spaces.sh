#!/usr/bin/env bash
# chrF gives a translation without spaces the full score.
#
# Versions: sacrebleu 2.6.0, Python 3.11.
# Seen: "thecatsat" against "the cat sat" has chrF 100. With word_order=2 (chrF++) it has 85.7.
# Expected: less than 100 for a text whose words are not apart.
# Here: translations have BLEU next to chrF.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check sacrebleu==2.6.0
cd "$folder"
env/bin/python - <<'PY'
import sacrebleu

said, meant = ["thecatsat"], [["the cat sat"]]
letters = sacrebleu.corpus_chrf(said, meant).score
words = sacrebleu.corpus_chrf(said, meant, word_order=2).score
print(letters, words)
assert letters == 100
assert 85 < words < 86
PY
echo "as stated: $(basename "$0" .sh)"
