"""The tables of the documentation site in a real browser: sorting and filtering, as a reader clicks."""

import html
import json
import re
import shutil
import subprocess

import pytest

from lightning_modules.places import project

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")]

PAGE = """<!doctype html><meta charset="utf-8"><article><table>
<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></article>
<script src="{script}"></script>
<script>
const shown = () => [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
const rows = () => shown().map((row) => row.cells[0].textContent);
const click = (column) => document.querySelectorAll("th button")[column].click();
const answer = [];
{actions}
document.body.innerHTML = "<pre>" + JSON.stringify(answer) + "</pre>";
</script>"""


def _answer(tmp_path, rows, actions):
    """What a page with this table answers after these actions."""
    head = "".join(f"<th>{name}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    script = (project() / "docs" / "_static" / "tables.js").as_uri()
    page = tmp_path / "page.html"
    text = PAGE
    for name, value in {"head": head, "body": body, "script": script, "actions": actions}.items():
        text = text.replace(f"{{{name}}}", value)
    page.write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    ended = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(html.unescape(re.search("<pre>(.*)</pre>", ended.stdout, re.DOTALL)[1]))


def test_a_click_sorts_by_what_numbers_mean_and_a_third_click_restores_the_order(tmp_path):
    rows = [
        ("cell", "loss", "tokens", "difference", "time"),
        ("a", "4.26 ± 0.01", "8.6 M", "-0.2 [-0.3, -0.1]", "2 min"),
        ("b", "10.5 ± 0.1", "942 k", "baseline", "90 s"),
        ("c", "", "1,200", "+0.7 [0.6, 0.8]", "1.5 h"),
        ("d", "4.48 ± 0.01", "1.2 G", "-0.11", "40 s"),
    ]
    actions = "\n".join(
        [
            "click(1); answer.push(rows()); click(1); answer.push(rows()); click(1); answer.push(rows());",
            *(f"click({column}); answer.push(rows());" for column in (2, 3, 4)),
        ]
    )
    ascending, descending, restored, tokens, differences, times = _answer(tmp_path, rows, actions)
    assert ascending == ["a", "d", "b", "c"], "by number, not by letters; empty cells last"
    assert descending == ["b", "d", "a", "c"], "empty cells last here too"
    assert restored == ["a", "b", "c", "d"]
    assert tokens == ["c", "b", "a", "d"], "k, M and G count"
    assert differences == ["a", "d", "c", "b"], "words after numbers"
    assert times == ["d", "b", "a", "c"], "seconds, minutes, hours"


def test_a_long_table_is_filtered_by_words_and_by_choices(tmp_path):
    papers = ["BERT", "ALBERT", "RoBERTa"]
    outcomes = ["as claimed", "open", "no grid", "against"]
    rows = [("claim", "paper", "outcome")]
    rows += [(f"claim {n}", papers[n % 3], outcomes[n % 4]) for n in range(48)]
    actions = """
    const [words, paper, outcome] = document.querySelectorAll(".table-filter input, .table-filter select");
    const count = () => document.querySelector(".table-filter output").value;
    const set = (field, value) => { field.value = value; field.dispatchEvent(new Event("input", {bubbles: true})); };
    answer.push([rows().length, count()]);
    set(paper, "BERT"); answer.push([rows().length, count()]);
    set(outcome, "as claimed"); answer.push([rows().length, count()]);
    set(paper, ""); set(outcome, ""); set(words, "roberta GRID"); answer.push([rows().length, count()]);
    click(0); click(0); answer.push(rows());
    """
    every, bert, both, words, sorted_rows = _answer(tmp_path, rows, actions)
    assert every == [48, "48 of 48"]
    assert bert == [16, "16 of 48"], "exactly BERT, not ALBERT too"
    assert both == [4, "4 of 48"]
    assert words == [4, "4 of 48"], "all words, in any letters"
    assert sorted_rows == sorted(sorted_rows, key=lambda name: -int(name.split()[1])), "a filtered table still sorts"


def test_outcomes_that_settle_a_claim_are_marked(tmp_path):
    rows = [["claim", "outcome", "effect"]]
    rows += [["a", "as claimed", "+0.1"], ["b", "open (power)", "-0.1"], ["c", "against (speed)", ""]]
    marked = _answer(tmp_path, rows, "for (const cell of document.querySelectorAll('td')) answer.push(cell.className);")
    assert marked == [
        "",
        "outcome outcome-as-claimed",
        "effect",
        "",
        "outcome",
        "effect",
        "",
        "outcome outcome-against",
        "effect",
    ]
