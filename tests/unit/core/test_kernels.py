"""A notebook's kernel ends in silence, also where it is slow to be done with the last thing it was asked."""

import nbformat
import pytest

from ablations.core import notebooks

SLOW = """
from time import sleep

def slowed(send, sleep=sleep):
    def slowly(stream, kind, *given, **named):
        sent = send(stream, kind, *given, **named)
        if kind == "kernel_info_reply":
            sleep(1)
        return sent

    return slowly

session = get_ipython().kernel.session
session.send = slowed(session.send)
"""


@pytest.fixture
def executed(tmp_path):
    """Executes a notebook of one cell, and returns it as it was written."""

    def execute(code):
        cells = [nbformat.v4.new_code_cell(code)]
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
        source, output = tmp_path / "source.ipynb", tmp_path / "output.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), source)
        try:
            notebooks.execute(source, {}, output)
        finally:
            written = nbformat.read(output, as_version=4)
        return written

    return execute


@pytest.mark.slow
def test_a_kernel_that_is_slow_to_be_done_is_not_interrupted(executed, capfd):
    notebook = executed(SLOW + "print('shown')")
    assert notebook.cells[-1].outputs[0].text == "shown\n"
    assert notebook.metadata.language_info.name == "python"
    assert "KeyboardInterrupt" not in capfd.readouterr().err
