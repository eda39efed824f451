#!/usr/bin/env bash
# With a lower-casing normaliser an added piece is found in the text in lower case too.
#
# Versions: tokenizers 0.23.3, Python 3.11.
# Seen: after add_tokens(["[MASK]"]) "the [mask] cat" has the id of [MASK], and the token reads [mask].
# Expected: the piece as it was added alone, as add_special_tokens does.
# Here: special pieces are special, and text that spells one is text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check tokenizers==0.23.3
cd "$folder"
env/bin/python - <<'PY'
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

words = {"the": 0, "cat": 1, "[UNK]": 2}
found = {}
for name in ("add_tokens", "add_special_tokens"):
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    getattr(tokenizer, name)(["[MASK]"])
    encoded = tokenizer.encode("the [mask] cat")
    found[name] = encoded.ids, encoded.tokens
    print(name, *found[name])
assert found["add_tokens"] == ([0, 3, 1], ["the", "[mask]", "cat"])
assert 3 not in found["add_special_tokens"][0]
PY
echo "as stated: $(basename "$0" .sh)"
