"""The part of the site that is made at build time: pages of what exists, and how code is shown.

``pages`` says what is generated, ``grid_pages`` which results pages and notebooks belong to a grid, ``run_tables`` what
a reader downloads; ``links`` leads links of Markdown to pages, ``sections`` cuts a part out of a file, ``reference``
forms docstrings and signatures. Only the last, and ``events``, which joins all to Sphinx, need it. Nothing here states
a fact of its own: numbers come from ``results/``, claims and printed values from ``ablations/published/``, everything
else from the code.
"""
