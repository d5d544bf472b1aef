"""The packing of slices into tasks."""

from __future__ import annotations

import pickle

import pytest

from ackline.spark.pieces import Piece
from ackline.spark.tasks import MIN_TASK_BYTES, packed


def pieces(*sizes: int) -> list[Piece]:
    return [Piece(f"{n}.seg", "u", 0, size, n, n + 1) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("most", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "sizes", [(), (5,), (1,) * 40, (MIN_TASK_BYTES,) * 20, (9 * MIN_TASK_BYTES, 1, 1), (0, 0)]
)
def test_all_pieces_in_order_in_at_most_so_many_tasks(sizes: tuple[int, ...], most: int) -> None:
    tasks = packed(pieces(*sizes), most)
    assert [piece for task in tasks for piece in task.pieces] == pieces(*sizes)
    assert len(tasks) <= most
    assert all(task.pieces for task in tasks)


def test_little_work_is_one_task_and_much_is_spread() -> None:
    assert len(packed(pieces(*[MIN_TASK_BYTES // 8] * 6), 8, MIN_TASK_BYTES)) == 1
    assert len(packed(pieces(*[MIN_TASK_BYTES] * 16), 4, MIN_TASK_BYTES)) == 4


def test_a_task_can_be_pickled() -> None:
    task = packed(pieces(3, 4), 2)[0]
    assert pickle.loads(pickle.dumps(task)).pieces == task.pieces
