"""Parameters of notebooks in a kernel: those that papermill injects are compared with those declared."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

import ablations
from lightning_modules.config import ConfigError

DECLARED = "no Python", 'scale = "laptop"\nrates: list | None = None\n%precision 3'


@pytest.fixture
def kernel(monkeypatch):
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)

    def execute(*cells):
        for cell in (*DECLARED, *cells):
            shell.run_cell(cell, store_history=True)
        shell.run_cell("import ablations\nablations.check_parameters()", store_history=True).raise_error()

    return execute


def test_declared_parameters_and_none_at_all_are_as_good(kernel):
    ablations.check_parameters()  # before any cell
    kernel()
    kernel('# Parameters\nscale = "smoke"\nrates = [0.15, 0.4]\n')
    kernel("rate = 0.15")  # a cell of the user's own


def test_every_misspelt_parameter_is_named_with_the_nearest(kernel):
    with pytest.raises(ConfigError) as refused:
        kernel('# Parameters\nscale = "smoke"\nrate = "[0.15]"\nsclae = 2\n')
    assert [(problem.path, "Did you mean" in problem.message) for problem in refused.value.problems] == [
        ("rate", True),
        ("sclae", True),
    ]


def test_a_name_inside_a_function_declares_no_parameter(kernel):
    with pytest.raises(ConfigError, match="rate"):
        kernel("def f(x):\n    rate = x\n    return rate", "# Parameters\nrate = 0.4\n")
