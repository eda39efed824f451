"""The published tables: one page per paper, values as the papers print them."""

from collections.abc import Iterator

from ablations.core.formatting import Sheet, markdown, markdown_text
from ablations.literature.published_tables import PrintedTable, catalogue, plain_name, sheet

FOLDER = "docs/generated/published"


def generated() -> Iterator[tuple[str, str]]:
    """Name and text of the index and of a page for each paper."""
    by_paper: dict[str, dict[str, PrintedTable]] = {}
    for name, table in catalogue().items():
        by_paper.setdefault(table.paper, {})[name] = table
    yield f"{FOLDER}/index.md", _index(by_paper)
    for paper, tables in by_paper.items():
        yield f"{FOLDER}/{plain_name(paper)}.md", _page(paper, tables)


def _index(by_paper: dict[str, dict[str, PrintedTable]]) -> str:
    lines = [
        f"| [{markdown_text(paper)}]({plain_name(paper)}.md) | {len(tables)} | "
        f"{sum(len(table.rows) for table in tables.values())} |"
        for paper, tables in by_paper.items()
    ]
    entries = "\n".join(f"{paper} <{plain_name(paper)}>" for paper in by_paper)
    return (
        "# Published tables\n\nWhat the papers print, as they print it. `ablations published albert.t4` prints one "
        "table, `--format csv` all columns; [what each column holds](/ablations/published/README.md).\n\n"
        "| paper | tables | values |\n|---|--:|--:|\n" + "\n".join(lines) + "\n\n"
        "```{toctree}\n:hidden:\n\nColumns of the files </ablations/published/README>\n" + entries + "\n```\n"
    )


def _page(paper: str, tables: dict[str, PrintedTable]) -> str:
    parts = [f"# {markdown_text(paper)}"]
    for name, table in tables.items():
        printed = sheet(table)
        values = Sheet(["variant", *printed.headings[1:]], printed.rows, printed.left, printed.notes)
        parts.append(f"## {markdown_text(table.table)}\n\n`ablations published {name}`\n\n{markdown(values)}")
    return "\n\n".join(parts)
