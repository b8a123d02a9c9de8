"""The Merkle tree beside the chain, against the recursive definition of RFC 6962, section 2.1."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.journal.chain import Tree, inclusion, rooted

hashes = st.integers(1, 130).map(lambda size: [sha256(str(n).encode()).digest() for n in range(size)])


def split(size: int) -> int:
    """The largest power of two below ``size``."""
    largest = 1
    while largest * 2 < size:
        largest *= 2
    return largest


def naive_root(rows: list[bytes]) -> bytes:
    if not rows:
        return sha256(b"").digest()
    if len(rows) == 1:
        return sha256(b"\0" + rows[0]).digest()
    k = split(len(rows))
    return sha256(b"\1" + naive_root(rows[:k]) + naive_root(rows[k:])).digest()


def naive_path(index: int, rows: list[bytes]) -> list[bytes]:
    if len(rows) == 1:
        return []
    k = split(len(rows))
    if index < k:
        return [*naive_path(index, rows[:k]), naive_root(rows[k:])]
    return [*naive_path(index - k, rows[k:]), naive_root(rows[:k])]


def grown(rows: list[bytes], tree: Tree | None = None) -> Tree:
    tree = tree or Tree()
    for each in rows:
        tree.append(each)
    return tree


def test_the_empty_tree() -> None:
    assert (Tree().root(), Tree().size, Tree().peaks) == (naive_root([]), 0, ())


@given(hashes)
def test_its_root_is_the_definition_s(rows: list[bytes]) -> None:
    tree = grown(rows)
    assert (tree.root(), tree.size) == (naive_root(rows), len(rows))


@given(hashes, st.data())
def test_it_goes_on_from_its_peaks(rows: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    before = grown(rows[:cut])
    assert len(before.peaks) <= 8
    assert grown(rows[cut:], Tree(before.size, before.peaks)).root() == naive_root(rows)


@given(hashes, st.data())
def test_a_path_is_the_definition_s_and_leads_to_the_root(rows: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    path = inclusion(rows, index)
    assert list(path) == naive_path(index, rows)
    assert rooted(rows[index], index, len(rows), path) == naive_root(rows)


@given(hashes, st.data())
def test_no_other_row_place_or_path_leads_to_the_root(rows: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(st.integers(0, len(rows) - 1).filter(lambda each: each != index) | st.none())
    path, root, size = inclusion(rows, index), naive_root(rows), len(rows)
    assert rooted(sha256(b"x").digest(), index, size, path) != root
    if other is not None:
        if len(inclusion(rows, other)) == len(path):
            assert rooted(rows[index], other, size, path) != root
        assert rooted(rows[other], index, size, path) != root
    for wrong in (path[:-1], (*path, root)):
        if wrong != path:
            with pytest.raises(ValueError, match="too"):
                rooted(rows[index], index, size, wrong)


def test_an_inner_node_is_no_leaf() -> None:
    """Mutation: without the byte before a leaf, two hashes side by side pass for one row."""
    rows = [bytes([n]) * 32 for n in range(4)]
    leaves = [sha256(b"\0" + each).digest() for each in rows]
    pairs = [leaves[0] + leaves[1], leaves[2] + leaves[3]]
    assert grown(pairs).root() != grown(rows).root()


@pytest.mark.parametrize(("size", "peaks"), [(1, ()), (3, (b"x" * 32,)), (1, (b"x",)), (-1, (b"x" * 32,))])
def test_peaks_that_are_no_tree_s_are_refused(size: int, peaks: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="peaks"):
        Tree(size, peaks)


@pytest.mark.parametrize(("index", "size"), [(-1, 4), (4, 4), (0, 0)])
def test_a_row_that_is_not_there_has_no_path(index: int, size: int) -> None:
    rows = [b"x" * 32] * size
    with pytest.raises(IndexError):
        inclusion(rows, index)
    with pytest.raises(ValueError, match="not among"):
        rooted(b"x" * 32, index, size, ())
