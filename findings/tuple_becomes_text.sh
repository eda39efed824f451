#!/usr/bin/env bash
# papermill writes a tuple into the notebook as text, and integer keys as text.
#
# Versions: papermill 2.7.0, Python 3.11.
# Seen: (0.15, 0.4) becomes "(0.15, 0.4)", a string of 11 characters. {1: 0.5} becomes {"1": 0.5}.
# Expected: a list or a tuple of two numbers, or an error.
# Here: an axis that is such a text is refused, and the message shows a list.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check papermill==2.7.0
cd "$folder"
env/bin/python - <<'PY'
import nbformat
import papermill

cell = nbformat.v4.new_code_cell("rates, shares = [], {}", metadata={"tags": ["parameters"]})
kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), "in.ipynb")
given = {"rates": (0.15, 0.4), "shares": {1: 0.5}}
made = papermill.execute_notebook("in.ipynb", "out.ipynb", given, prepare_only=True, progress_bar=False)
source = made.cells[1].source
print(source)
assert 'rates = "(0.15, 0.4)"' in source
assert 'shares = {"1": 0.5}' in source
PY
echo "as stated: $(basename "$0" .sh)"
