"""The order in which a Java hash table walks its keys if one bucket has had more than eight.

Java grows a small table for such a bucket; in a table of 64 buckets or more it turns the bucket
into a red-black tree. A tree is walked along a list: a new key stands behind its parent in the
tree, and the root moves to the front whenever it has changed. The list outlives the tree. When the
table grows, the list is split in two, in its order, and a part of six or fewer keys is no tree any
more.

Source: `java.util.HashMap` (treeifyBin, TreeNode.putTreeVal, split, moveRootToFront).
"""

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

LIST_MAX: Final = 8
"""Largest number of keys in a bucket that is a list. With more, the bucket becomes a tree or the
table grows."""
_TREE_MIN: Final = 7
"""Smallest number of keys with which a tree stays a tree after a split."""
TREES_FROM: Final = 64
"""Smallest number of buckets of a table with trees."""
_SIGN: Final = 2**31


class _Node(Generic[T]):
    __slots__ = ("item", "left", "parent", "rank", "red", "right", "spread")

    def __init__(self, item: T, spread: int, tie_rank: Any) -> None:
        self.item = item
        self.spread = spread
        signed = spread - 2 * _SIGN if spread >= _SIGN else spread
        self.rank = signed, tie_rank
        """Order of the node in its tree: the spread hash as a signed number, then the comparison of
        the keys."""
        self.forget_tree()

    def forget_tree(self) -> None:
        self.parent: _Node[T] | None = None
        self.left: _Node[T] | None = None
        self.right: _Node[T] | None = None
        self.red = False


class _Bucket(Generic[T]):
    def __init__(self, nodes: "list[_Node[T]]") -> None:
        self.nodes = nodes
        """Nodes in the order of the walk."""
        self._root: _Node[T] | None = None
        """Root of the tree; None if the bucket is a list."""

    @property
    def is_tree(self) -> bool:
        return self._root is not None

    def make_tree(self) -> None:
        self._root = None
        for node in self.nodes:
            node.forget_tree()
            self._add(node)
        self._root_to_front()

    def put(self, node: "_Node[T]") -> None:
        if self._root is None:
            self.nodes.append(node)
            return
        parent = self._add(node)
        self.nodes.insert(self.nodes.index(parent) + 1, node)
        self._root_to_front()

    def split(self, bit: int) -> "tuple[_Bucket[T], _Bucket[T]]":
        """Return a bucket of nodes whose hashes lack `bit`, and one of nodes whose hashes have
        it."""
        low = _Bucket([node for node in self.nodes if not node.spread & bit])
        high = _Bucket([node for node in self.nodes if node.spread & bit])
        if self.is_tree:
            for part, other in ((low, high), (high, low)):
                if not other.nodes:
                    part._root = self._root  # the whole tree, unchanged
                elif len(part.nodes) >= _TREE_MIN:
                    part.make_tree()
        return low, high

    def _root_to_front(self) -> None:
        root = self._root
        assert root is not None
        self.nodes.remove(root)
        self.nodes.insert(0, root)

    # -- the tree --

    def _add(self, node: "_Node[T]") -> "_Node[T]":
        """Add a node to the tree. Return its parent before the tree was balanced; the node itself
        if it is the first."""
        parent, at = node, self._root
        while at is not None:
            parent, at = at, at.left if node.rank < at.rank else at.right
        if parent is node:
            self._root = node
            return node
        node.parent = parent
        if node.rank < parent.rank:
            parent.left = node
        else:
            parent.right = node
        self._balance(node)
        return parent

    def _balance(self, node: "_Node[T]") -> None:
        node.red = True
        while (parent := node.parent) is not None and parent.red:
            above = parent.parent
            assert above is not None  # a root is black
            is_left = parent is above.left
            uncle = above.right if is_left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                node = above
                continue
            if node is (parent.right if is_left else parent.left):
                self._rotate(parent, left=is_left)
                node, parent = parent, node
            parent.red = False
            above.red = True
            self._rotate(above, left=not is_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, node: "_Node[T]", *, left: bool) -> None:
        """Rotate `node`: its child on the other side takes its place."""
        child = node.right if left else node.left
        assert child is not None
        inner = child.left if left else child.right
        if left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        above = child.parent = node.parent
        node.parent = child
        if above is None:
            self._root = child
        elif above.left is node:
            above.left = child
        else:
            above.right = child


class HashTable(Generic[T]):
    """A hash table that walks its keys as Java's `HashMap` does.

    Args:
        capacity: Number of buckets at first, a power of two.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buckets: dict[int, _Bucket[T]] = {}
        self._size = 0

    def put(self, item: T, spread: int, tie_rank: Any) -> None:
        """Put an item into the table.

        Args:
            item: An item that is not in the table.
            spread: Spread of its hash, unsigned, 32 bits.
            tie_rank: Orders keys of equal hash as their `compareTo` does.
        """
        node = _Node(item, spread, tie_rank)
        index = spread & self._capacity - 1
        bucket = self._buckets.setdefault(index, _Bucket([]))
        bucket.put(node)
        if not bucket.is_tree and len(bucket.nodes) > LIST_MAX:
            if self._capacity < TREES_FROM:
                self._grow()
            else:
                bucket.make_tree()
        self._size += 1
        if self._size > self._capacity * 3 // 4:
            self._grow()

    def walk(self) -> Iterable[T]:
        for index in sorted(self._buckets):
            for node in self._buckets[index].nodes:
                yield node.item

    def _grow(self) -> None:
        grown: dict[int, _Bucket[T]] = {}
        for index, bucket in self._buckets.items():
            for part, place in zip(bucket.split(self._capacity), (0, self._capacity), strict=True):
                if part.nodes:
                    grown[index + place] = part
        self._buckets = grown
        self._capacity *= 2
