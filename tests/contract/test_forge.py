"""What runs outside the tests: workflows and the image call targets and files that exist."""

import fnmatch
import re
import subprocess
import sys

import yaml

from lightning_modules.places import project

ROOT = project()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_workflows_follow_githubs_schema():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_every_job_makes_targets_that_exist():
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            rows = job.get("strategy", {}).get("matrix", {}).get("include", [])
            steps = [step.get("run", "") for step in job["steps"]] + [f"make {row['target']}" for row in rows]
            made = set(re.findall(r"\bmake ([a-z-]+)", " ".join(steps)))
            assert made, name
            assert made <= TARGETS, name


def test_help_lists_every_target_and_every_target_is_phony():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^\s*make ([a-z-]+) ", listed, re.MULTILINE)) == TARGETS
    assert set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()) == TARGETS


def test_the_image_copies_files_that_exist():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    for arguments in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in arguments.split()[1:-1]:
            assert (ROOT / source).exists(), source
            assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
    assert ".git" not in ignored, "records name the commit"
