"""What runs outside the tests: workflows, hooks and images call commands that exist, with the versions of the pins."""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import yaml

from lightning_modules.places import project
from tests.contract.test_packaging import PINS, interpreters
from tests.every import every

ROOT = project()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())


def read(path: Path) -> dict:
    """A YAML file; the key ``on`` of workflows is YAML's word for true."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rows(job: dict) -> list[dict]:
    """The combinations of a job's matrix."""
    return job.get("strategy", {}).get("matrix", {}).get("include", [{}])


def made(job: dict) -> list[str]:
    """The targets of make that a job runs, one for each row of its matrix."""
    targets = []
    for row in rows(job):
        for step in job["steps"]:
            filled = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name, row=row: str(row[name[1]]), step.get("run", ""))
            targets += re.findall(r"\bmake ([a-z-]+)", filled)
    return targets


JOBS = [(path.name, name, job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]


@every("path", WORKFLOWS)
def test_workflows_follow_githubs_schema(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@every("path", WORKFLOWS)
def test_workflows_read_only_and_stop_in_time(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", f"x@{'0' * 40}")), "pinned to a commit"


@every("file, name, job", JOBS)
def test_every_job_makes_targets_that_exist(file, name, job):
    assert made(job)
    assert set(made(job)) <= TARGETS


def test_the_forge_makes_lint_tests_notebooks_and_docs_on_every_interpreter():
    assert {target for *_, job in JOBS for target in made(job)} >= {"lint", "test", "notebooks", "docs"}
    tested = {row["python"] for *_, job in JOBS for row in rows(job) if row.get("target") == "test"}
    assert tested == set(interpreters())


def test_help_lists_every_target_and_every_target_is_phony():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^\s*make ([a-z-]+) ", listed, re.MULTILINE)) == TARGETS
    assert set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) == TARGETS


def test_clean_removes_every_cache_that_git_ignores():
    removed = subprocess.run(["make", "--dry-run", "clean"], cwd=ROOT, capture_output=True, text=True, check=True)
    ignored = (ROOT / ".gitignore").read_text().split()
    kept = {
        ".venv/",
        "__pycache__/",
        "*.egg-info/",
        ".ipynb_checkpoints/",
        "results/.locks/",
        "results/unpublished/",
        "*.ckpt",
        "*.tmp",
    }
    assert {name.rstrip("/") for name in ignored if name not in kept} <= set(removed.stdout.split())


def test_ci_is_two_commands_of_a_newcomer():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make lint", "make test"]


def test_hooks_have_the_versions_of_the_pins():
    repos = {repo["repo"]: repo for repo in read(ROOT / ".pre-commit-config.yaml")["repos"]}
    assert repos["https://github.com/astral-sh/ruff-pre-commit"]["rev"] == f"v{PINS['ruff']}"
    (linter,) = repos["local"]["hooks"]
    assert linter["additional_dependencies"] == [f"import-linter=={PINS['import-linter']}"]
    hooks = {hook["id"] for repo in repos.values() for hook in repo["hooks"]}
    assert hooks >= {"ruff-check", "ruff-format", "lint-imports", "check-yaml", "trailing-whitespace"}


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments on one line."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if re.match("[A-Z]+ ", line)]


def test_the_image_copies_files_that_exist_and_makes_targets_that_exist():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name, arguments in instructions():
        if name == "COPY":
            for source in arguments.split()[1:-1]:
                assert (ROOT / source).exists(), source
                assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
    assert instructions()[-1] == ("CMD", '["make", "test-gpu"]')
    assert ".git" not in ignored, "records name the commit"


def test_the_image_installs_before_it_copies_the_code_and_does_not_run_as_root():
    steps = [f"{name} {arguments}" for name, arguments in instructions()]
    install, code = steps.index("RUN make .venv/.installed"), steps.index("COPY --chown=1000:1000 . .")
    assert install < code
    (user,) = [index for index, step in enumerate(steps) if step.startswith("USER ")]
    assert steps[user].split()[1] not in ("0", "root")
    assert user < install
