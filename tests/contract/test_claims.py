"""Promises about the claims of all grids: said once, and told before anything runs."""

import pytest
import yaml

from ablations.claims.published_claims import with_parts
from ablations.pages import lectures_page
from ablations.pages.tables import published_values
from ablations.planning import grids
from ablations.study import Study
from tests.contract.test_cell_identities import cells_of
from tests.every import every


@every("name", grids.available())
def test_every_claim_of_a_grid_is_a_published_one_or_states_itself(name):
    written = yaml.safe_load(grids.locate(name).read_text(encoding="utf-8")).get("claims", [])
    for claim, entry in zip(grids.read(name).claims, written, strict=True):
        if claim.claim:
            assert claim.statement == with_parts()[claim.claim].statement
            assert not {"statement", "source", "published_metric", "published"} & entry.keys()
        else:
            assert {"id", "statement", "source"} <= entry.keys()
            assert claim.id not in with_parts()


@every("name", grids.available())
def test_hypotheses_list_every_claim_of_a_grid_and_published_every_table(name, tmp_path):
    study = Study(name, "smoke", results_dir=tmp_path)
    told, tables = study.hypotheses(), study.published()
    if study.grid.claims:
        assert list(told.data["claim"]) == [claim.id for claim in study.grid.claims]
        assert told.data["agreement"].all()
    text = str(told).replace("&lt;", "<").replace("\\", "")
    for number, claim in enumerate(study.grid.claims, start=1):
        assert f"{number}. *{claim.statement}* (" in text
        assert claim.source in text
    printed = {(table.file.removesuffix(".csv"), table.table) for table in study.grid.published}
    shown = tables.data.drop_duplicates(["paper", "table"]) if printed else ()
    assert len(shown) == len(printed)


def test_a_table_of_the_lectures_has_its_values_and_every_grid_that_names_it():
    naming = {}
    for name in grids.available():
        for source in grids.read(name).published:
            naming.setdefault((source.file.removesuffix(".csv"), source.table), set()).add(name)
    printed = lectures_page.read()
    assert len(printed) == len({(one.file, one.table) for one in printed}) == 30
    for one in printed:
        assert naming.get((one.file, one.table), set()) <= {*one.grids} <= grids.available().keys()
        assert bool(one.grids) != bool(one.instead)


@pytest.mark.slow
@every("name", grids.available())
def test_at_every_scale_a_cell_has_one_published_value_of_a_metric(name):
    """Otherwise the page could not be made, once its first run is done."""
    grid = grids.read(name)
    for cells in cells_of(name).values():
        joined = published_values(grid, cells)
        assert len(joined) == len(cells)
        assert all(metric == row.metric for found in joined for metric, row in found.items())
