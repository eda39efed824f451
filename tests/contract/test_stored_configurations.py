"""The records under `results` are read by today's code, and their runs have the ids that they had.

A record holds the settings that there were on its day. `stored_identities.json` is complete, so it would not show that
an older configuration is refused, or that a setting which it lacks now means something else. Restore the spelling or
the default that changed: a run with another id is lost to every page.
"""

from collections.abc import Iterable, Iterator

import pytest

from ablations.core.store import Records
from ablations.schema.record import Record


def differences(found: Iterable[tuple[str, object]]) -> Iterator[str]:
    """What today's code makes of records otherwise than on their day, one line for each.

    The id is worked out from the configuration, and again with the parents that follow from it.
    """
    for name, entry in found:
        if not isinstance(entry, Record):
            yield f"{name} is damaged: {entry}"
            continue
        try:
            run = entry.run()
            ids = {run.id, run.of_generation(run.numerics).id} - {entry.id}
        except Exception as error:  # whatever a change makes of it
            yield f"{name} is refused: {type(error).__name__}: {' '.join(str(error).split())}"
        else:
            if ids:
                yield f"{name} has moved: its configuration now is run {' or '.join(sorted(ids))}"


def test_stored_configurations_are_read_and_keep_their_ids():
    found = dict(Records().survey())
    assert found
    lines = list(differences(found.items()))
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_a_configuration_that_is_refused_or_moved_is_named():
    record = next(record for record in Records().all() if record.run().parents)
    altered = [
        ({"seeds": 0}, "is refused"),
        ({"seed": record.config["seed"] + 1}, "has moved"),
        ({"parents": ["0" * 16]}, "has moved"),  # they do not follow from the rest
    ]
    for change, what in altered:
        (line, *_) = differences([(record.id, record.model_copy(update={"config": record.config | change}))])
        assert line.startswith(f"{record.id} {what}: "), change
