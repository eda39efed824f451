"""Parents of every run with a record: derived from its settings alone, and its id as it was."""

from ablations.core.store import Records
from lightning_modules.places import checkout


def test_every_recorded_run_derives_the_parents_and_the_id_that_it_has():
    records = [record for record in Records(checkout() / "results").all() if record.config.get("parents")]
    wrong = []
    for record in records:
        run = record.run()
        again = run.of_generation(run.numerics)
        derived = [parent.id for parent in run.by_role.values()]
        if not (run.id == again.id == record.id and derived == list(again.parents) == record.config["parents"]):
            wrong.append(record.id)
    assert len(records) > 400
    assert not wrong
