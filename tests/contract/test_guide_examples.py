"""The pages of how-to teach with names that are free: who follows them overwrites nothing."""

import re

from lightning_modules.backbones.settings import StackSettings
from lightning_modules.places import project


def test_the_example_of_a_new_knob_takes_an_unused_name():
    page = (project() / "docs/how-to/knob.md").read_text(encoding="utf-8")
    taught = set(re.findall(r"(\w+): \w+ = knob\(", page))
    assert taught
    assert not taught & set(StackSettings.model_fields)
