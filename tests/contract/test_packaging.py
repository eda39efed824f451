"""What the project says of itself to installers: version, licence, interpreters, dependencies, pins."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata

import yaml
from packaging.requirements import Requirement

import ablations
from lightning_modules.places import project
from tests.every import every

ROOT = project()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PACKAGES = ("ablations", "lightning_modules")
OWN = {*PACKAGES, "benchmarks", "tests", "site_extension", "budget"}
# started by name rather than imported, each with where
BY_NAME = {
    "ipykernel": "the kernel of notebooks",
    "check-jsonschema": "reads the workflows in a test",
    "hatchling": "builds the wheel, in a test too",
    "beartype": "named to jaxtyping's hook",
    "import-linter": "make lint",
    "pyright": "make lint",
    "ruff": "make lint",
    "pytest-timeout": "a plugin",
    "pytest-xdist": "a plugin",
}


def normal(name: str) -> str:
    """A distribution's name as indexes compare it, without version and extras."""
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~;\[ ]", name)[0]).lower()


CORE = {normal(requirement) for requirement in PROJECT["dependencies"]}
EXTRAS = {name: {normal(r) for r in listed} for name, listed in PROJECT["optional-dependencies"].items()}


def imports(tree: ast.AST, lazily: bool = False) -> Iterator[tuple[str, bool]]:
    """The top-level packages that a module imports, and whether only when a function is called or types are checked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], lazily) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0], lazily
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports(node, True)
        elif not isinstance(node, ast.expr):  # which holds no statement
            yield from imports(node, lazily or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@functools.cache
def imported(folder: str) -> dict[str, dict[str, bool]]:
    """Distribution -> file that imports it -> whether lazily, over all files of a folder."""
    distributions = metadata.packages_distributions()
    found: dict[str, dict[str, bool]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module, lazily in imports(ast.parse(path.read_text(encoding="utf-8"))):
            own = module in OWN or path.with_name(f"{module}.py").exists()  # a script's folder is on its path
            if not own and module not in sys.stdlib_module_names:
                names = {normal(name) for name in distributions.get(module, [module])}
                files = found.setdefault(min(names), {})
                where = str(path.relative_to(ROOT))
                files[where] = files.get(where, True) and lazily
    return found


def test_whatever_the_packages_import_is_declared():
    """Unconditionally, unless it belongs to an extra and is imported where it is used."""
    optional = set().union(*EXTRAS.values())
    for package in PACKAGES:
        for name, files in imported(package).items():
            allowed = name in CORE or (name in optional and all(files.values()))
            assert allowed, f"{name} is imported by {', '.join(files)} and not a dependency"


def test_whatever_tests_and_benchmarks_import_is_declared():
    for name, files in imported("tests").items():
        assert name in CORE | EXTRAS["dev"], f"{name} is imported by {', '.join(files)}; declare it in the extra dev"
    for name, files in imported("benchmarks").items():
        assert name in CORE | EXTRAS["bench"], f"{name} is imported by {', '.join(files)}; declare it in bench"


def test_whatever_is_declared_is_used():
    used = BY_NAME.keys() | set().union(*map(imported, PACKAGES))
    assert used >= CORE, f"nothing imports {CORE - used}"
    used |= imported("tests").keys()
    assert used >= EXTRAS["dev"], f"nothing imports {EXTRAS['dev'] - used}"
    assert BY_NAME.keys() <= CORE | EXTRAS["dev"]


def test_there_is_one_version():
    said = subprocess.run([sys.executable, "-m", "ablations", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["ablations", ablations.__version__]
    assert str(CITATION["version"]) == ablations.__version__
    assert PROJECT["dynamic"] == ["version"], "the number stands in the code alone"
    assert re.fullmatch(r"\d+\.\d+\.\d+", ablations.__version__)


def test_licence_name_and_address_are_the_same_everywhere():
    assert CITATION["license"] == PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert CITATION["title"].split(":")[0].lower() == PROJECT["name"]
    assert set(CITATION["keywords"]) == set(PROJECT["keywords"])
    addresses = {CITATION[key] for key in ("url", "repository-code") if key in CITATION}
    assert set(PROJECT.get("urls", {}).values()) >= addresses
    assert bool(PROJECT.get("urls")) == bool(addresses), "an address stands in both files or in neither"


REQUIRED = {"dependencies": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}


@every("extra", sorted(REQUIRED.keys() - {"lab"}))  # opened by hand, no part of any result
def test_every_dependency_is_pinned_within_its_range(extra):
    for requirement in map(Requirement, REQUIRED[extra]):
        assert normal(requirement.name) in PINS, f"constraints.txt has no {requirement.name}"
        assert requirement.specifier.contains(PINS[normal(requirement.name)]), f"{requirement} is pinned outside"


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


PINS = _pins()


def test_conda_asks_for_the_same_things_as_pip():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == PROJECT["name"]
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    (install,) = [line for line in pip if line.startswith("-e")]
    extras = set(re.search(r"\[(.*)\]", install)[1].split(","))
    assert "dev" in extras <= EXTRAS.keys()
    assert "-c constraints.txt" in pip
    indexes = re.sub(r"(?m)^( *)# (- --extra-index-url)", r"\1\2", (ROOT / "environment.yml").read_text())
    (offered,) = [entry["pip"] for entry in yaml.safe_load(indexes)["dependencies"] if isinstance(entry, dict)]
    assert [line for line in offered if line not in pip] == ["--extra-index-url ${TORCH_INDEX}"]
    (python,) = [entry.removeprefix("python=") for entry in plain if entry.startswith("python=")]
    assert python in interpreters()


def interpreters() -> list[str]:
    """The Python versions of the classifiers."""
    prefix = "Programming Language :: Python :: 3."
    return ["3." + line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(prefix)]


def test_the_first_interpreter_is_the_required_one():
    assert PROJECT["requires-python"] == f">={interpreters()[0]}"
    target = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["target-version"]
    assert target == "py" + interpreters()[0].replace(".", "")
