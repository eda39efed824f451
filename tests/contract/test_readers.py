"""Every direct read of a file has a reason here; whatever somebody else could have put there is read by `files`."""

import ast

from lightning_modules.places import project
from tests.every import every

# What opens a path: methods of paths, functions, and functions of libraries with what they are called on.
_METHODS = {"read_text", "read_bytes"}
_FUNCTIONS = {"open", "safe_open", "load_file"}
_LIBRARIES = {
    ("os", "open"), ("io", "open"), ("codecs", "open"), ("np", "load"), ("np", "memmap"), ("np", "fromfile"),
    ("np", "loadtxt"), ("np", "genfromtxt"), ("torch", "load"), ("nbformat", "read"), ("ElementTree", "parse"),
    ("zipfile", "ZipFile"), ("tarfile", "open"), ("gzip", "open"), ("bz2", "open"), ("lzma", "open"),
    ("fileinput", "input"), ("shutil", "copyfile"), ("shutil", "copy"), ("shutil", "copy2"), ("shutil", "copytree"),
    ("Tokenizer", "from_file"), ("pd", "read_csv"), ("pd", "read_json"), ("papermill", "inspect_notebook"),
    ("papermill", "execute_notebook"),
}  # fmt: skip
_MODES = {*"rwaxbt+"}
_OWN = "a file of the package itself"
_KERNEL = "a file of the kernel"
_DIGEST = "a file of the cache, whose digest has just been compared"
_NEW = "writes what it has just made, and what nobody else could have put there"
_FOLDER = "opens a folder, for its lock or to flush it"
_CHECKED = "a library, after `open_plain` or `read` of the same path"
ROWS = {
    "ablations/__init__.py: frame": "opens a study, no file",
    "ablations/claims/published_claims.py: with_parts": _OWN,
    "ablations/core/disk/locks.py: check": _KERNEL,
    "ablations/core/disk/publishing.py: _attempt": f"{_NEW}; {_FOLDER}",
    "ablations/core/disk/publishing.py: turn": _FOLDER,
    "ablations/commands/cli.py: init": _OWN,
    "ablations/core/notebooks.py: _declared": _CHECKED,
    "ablations/core/notebooks.py: _execute": _CHECKED,
    "ablations/core/provenance.py: digest": _OWN,
    "ablations/literature/published_values.py: read": _OWN,
    "ablations/pages/parameters_page.py: damages": _NEW,
    "ablations/planning/new_grid.py: _scales": _OWN,
    "ablations/planning/new_grid.py: _text": _OWN,
    "ablations/running/between.py: resident": _KERNEL,
    "ablations/running/keeper.py: Keeper._make_all": _NEW,
    "ablations/running/keeper.py: unfit": "a job, read before it is known whether the code can be imported",
    "ablations/running/executor.py: _Active.news": "a diary in the cache, which a job of this launch writes",
    "ablations/running/engines/ray.py: copied": _OWN,
    "ablations/running/inference.py: _processor": _KERNEL,
    "ablations/running/ranks/meeting.py: Meeting._put": _NEW,
    "ablations/running/ranks/memory.py: kills": _KERNEL,
    "ablations/running/worker.py: _Reporter.__call__": _NEW,
    "lightning_modules/cached.py: get_json": _DIGEST,
    "lightning_modules/cached.py: kept_array": _DIGEST,
    "lightning_modules/data/store.py: TokenStore.marks": _DIGEST,
    "lightning_modules/data/store.py: TokenStore.open": _DIGEST,
    "lightning_modules/data/store.py: _build": _NEW,
    "lightning_modules/data/word_vectors.py: _read": _DIGEST,
    "lightning_modules/finetuning/features.py: Kept.rows": _DIGEST,
    "lightning_modules/interop/folder.py: tensors": _CHECKED,
    "lightning_modules/interop/own_tokenizer.py: write_tokenizer": _DIGEST,
    "lightning_modules/pins.py: Pins.entries": _OWN,
    "lightning_modules/places.py: checkout": _OWN,
    "lightning_modules/plugins.py: listing": "a module that is to be imported",
    "lightning_modules/plugins.py: modules": "settings of the study, which may run any module of it",
    "lightning_modules/plugins.py: parts": "a module that was imported",
    "lightning_modules/tasks/pins.py: _code": _OWN,
    "lightning_modules/tasks/reading/pieces.py: Pieces._read": _DIGEST,
    "lightning_modules/training/checkpoint.py: _read": _CHECKED,
    "lightning_modules/training/weights.py: _opened": _CHECKED,
}


def _opens(node):
    """Whether a part of the code opens a file, or names the function of a library that does."""
    if isinstance(node, ast.Attribute):
        owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
        return (owner, node.attr) in _LIBRARIES or (node.attr in _METHODS and owner != "files")
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in _FUNCTIONS
    modes = [getattr(given, "value", None) for given in node.args[:1]]  # a path's `open` has no other first argument
    return getattr(node.func, "attr", "") == "open" and all(str(mode) and {*str(mode)} <= _MODES for mode in modes)


def _openers(node, place=""):
    """The functions and methods below a node that open files; what is inside a function counts as it."""
    for child in ast.iter_child_nodes(node):
        if _opens(child):
            yield place
        is_named = isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not isinstance(node, ast.FunctionDef)
        yield from _openers(child, f"{place}.{child.name}".lstrip(".") if is_named else place)


def test_every_function_that_opens_files_for_itself_has_a_reason():
    found = set()
    for package in ("ablations", "lightning_modules"):
        for path in (project() / package).rglob("*.py"):
            place = path.relative_to(project()).as_posix()
            if place != "lightning_modules/files.py":
                found |= {f"{place}: {name}" for name in _openers(ast.parse(path.read_text(encoding="utf-8")))}
    assert found == set(ROWS)


@every(
    "line",
    [
        "path.read_text(encoding='utf-8')", "(folder / 'a').read_bytes()", "open(path)", "path.open('rb')",
        "path.open()", "kept(path, make, np.load)",
        "np.memmap(path)", "safe_open(path, 'pt')",
        "os.open(path, os.O_RDONLY)", "tokenizers.Tokenizer.from_file(str(path))", "shutil.copyfile(a, b)",
    ],
)  # fmt: skip
def test_a_new_reader_is_found(line):
    assert set(_openers(ast.parse(f"class A:\n  def b(self):\n    if 1:\n      c = [{line}]"))) == {"A.b"}


@every("line", ["read(path)", "files.read_text(path)", "TokenStore.open(folder)", "self.open(launch)"])
def test_what_opens_nothing_itself_is_not(line):
    assert not set(_openers(ast.parse(f"def b():\n  {line}")))
