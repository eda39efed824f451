/* Tables of the site: a click on a heading sorts, a third click restores the order; long tables can be filtered. */
"use strict";

(() => {
  const LONG = 30; // rows from which a table gets a filter
  const MOST_CHOICES = 30; // distinct values up to which a column gets a list to choose from
  const SENTENCE = 32; // mean characters of a cell from which a column holds sentences
  const OUTCOMES = new Set(["outcome", "verdict"]); // headings of columns that have a colour
  const SETTLED = ["as claimed", "against"]; // other outcomes say nothing of the claim
  const UNITS = {
    "%": 1, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400,
    k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  };
  const NUMBER = /^[~<>]?\s*([+\-\u2212]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|ms|min|s|h|d|[kMGTPE])?(?=$|[\s\[(±*])/;

  const text = (row, column) => (row.cells[column] ? row.cells[column].textContent.trim() : "");

  /** The number that a cell begins with, in units without prefix: 8.6 M is 8600000; NaN if it begins with none. */
  function number(value) {
    const found = NUMBER.exec(value);
    if (!found) return NaN;
    return Number(found[1].replaceAll(",", "").replace("\u2212", "-")) * (UNITS[found[2]] ?? 1);
  }

  /** Compares two cells: numbers before words, empty cells last in both directions. */
  function compare(a, b, sign) {
    if (!a || !b) return Number(!a) - Number(!b);
    const [x, y] = [number(a), number(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y) && x !== y) return sign * (x - y);
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * a.localeCompare(b, "en", { numeric: true });
  }

  /** Marks the columns of sentences, so that they get room and others do not. */
  function giveRoom(table) {
    const rows = [...table.tBodies[0].rows];
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const lengths = rows.map((row) => text(row, column).length).filter(Boolean);
      const mean = lengths.reduce((sum, length) => sum + length, 0) / (lengths.length || 1);
      if (mean <= SENTENCE) return;
      for (const row of [table.tHead.rows[0], ...rows]) row.cells[column]?.classList.add("sentences");
    });
  }

  /** Marks the cells of outcomes by their first words, so that they have a colour, and effects, which stay in a line. */
  function markVerdicts(table) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const name = heading.textContent.trim();
      if (name !== "effect" && !OUTCOMES.has(name)) return;
      for (const row of table.tBodies[0].rows) {
        const kind = SETTLED.find((word) => text(row, column).startsWith(word));
        const own = name === "effect" ? ["effect"] : ["outcome", ...(kind ? [`outcome-${kind.replace(" ", "-")}`] : [])];
        row.cells[column]?.classList.add(...own);
      }
    });
  }

  function makeSortable(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" };
        const order = next[heading.getAttribute("aria-sort") ?? "none"];
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (order !== "none") heading.setAttribute("aria-sort", order);
        const sign = order === "descending" ? -1 : 1;
        const rows = [...original];
        if (order !== "none") rows.sort((a, b) => compare(text(a, column), text(b, column), sign));
        body.append(...rows);
      });
    });
  }

  /** The columns with few values, each with these values: those of which it makes sense to choose one. */
  function choices(rows, headings) {
    return headings.flatMap((heading, column) => {
      if (rows[0].cells[column]?.classList.contains("sentences")) return [];
      const values = [...new Set(rows.map((row) => text(row, column)))].filter(Boolean);
      const few = values.length > 1 && values.length <= Math.min(MOST_CHOICES, rows.length / 4);
      const words = values.filter((value) => Number.isNaN(number(value))).length;
      return few && words > values.length / 2 ? [{ heading, column, values: values.sort() }] : [];
    });
  }

  function makeFilterable(table) {
    const rows = [...table.tBodies[0].rows];
    const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    const form = document.createElement("form");
    form.className = "table-filter";
    form.addEventListener("submit", (event) => event.preventDefault());
    const words = Object.assign(document.createElement("input"), { type: "search", placeholder: "filter rows" });
    words.setAttribute("aria-label", "filter rows");
    form.append(words);
    const lists = choices(rows, headings).map(({ heading, column, values }) => {
      const list = document.createElement("select");
      list.setAttribute("aria-label", heading);
      list.append(new Option(`${heading}: all`, ""), ...values.map((value) => new Option(value, value)));
      form.append(list);
      return { list, column };
    });
    const count = document.createElement("output");
    form.append(count);
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const all = row.textContent.toLowerCase();
        const fits = lists.every(({ list, column }) => !list.value || text(row, column) === list.value);
        row.hidden = !(fits && wanted.every((word) => all.includes(word)));
        shown += Number(!row.hidden);
      }
      count.value = `${shown} of ${rows.length}`;
    };
    form.addEventListener("input", apply);
    apply();
    (table.closest(".pst-scrollable-table-container") ?? table).before(form);
  }

  for (const table of document.querySelectorAll("article table")) {
    const body = table.tBodies[0];
    if (!table.tHead || table.tHead.rows.length !== 1 || !body) continue;
    giveRoom(table);
    markVerdicts(table);
    if (body.rows.length < 3) continue;
    if (body.rows.length >= LONG) makeFilterable(table);
    makeSortable(table);
  }
})();
