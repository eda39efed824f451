"""Made parallel text: copies, reversed rows and their control."""

from lightning_modules.data.corpora.registry import corpus


def sides(name, split="train"):
    return list(zip(*corpus(f"made-pairs:{name}").documents(split), strict=True))


def test_targets_are_the_sources_in_some_order_or_in_none():
    copied, turned, unrelated = (
        sides(f"{target},length=6,pairs=200") for target in ("copied", "reversed", "unrelated")
    )
    assert copied[0] == copied[1] == turned[0] == unrelated[0]
    assert [line.split()[::-1] for line in turned[1]] == [line.split() for line in turned[0]]
    same = sum(a == b for rows in zip(*unrelated, strict=True) for a, b in zip(*map(str.split, rows), strict=True))
    assert same < 0.05 * 6 * 200, "a control says nothing of its source"
    assert {len(line.split()) for line in copied[0]} == {6}
    assert len(copied[0]) == 200


def test_held_out_pairs_are_others_and_every_text_is_made_again():
    trained, heldout = sides("copied,pairs=320"), sides("copied,pairs=320", "heldout")
    assert len(heldout[0]) == 20
    assert not set(trained[0]) & set(heldout[0])
    assert sides("copied,pairs=320") == trained
    assert corpus("made-pairs:copied").languages == ("made", "copied")
