"""The lanes index on a processor without AVX-512, as numba is told; ``test_lanes.py`` runs it in a process of its own."""

from dskype.bolts.boolean.lanes.vector_kernels import WIDE
from tests.bolts.boolean.lanes import test_lanes


def main() -> None:
    """Run the tests that reach every operation."""
    assert not WIDE
    test_lanes.test_long_lists_become_groups_and_trees(8)
    test_lanes.test_long_lists_become_groups_and_trees(400)
    test_lanes.test_lists_shrink_again((160.0, 80.0))
    test_lanes.test_subscriptions_that_move_through_many_groups_keep_their_halves_and_triggers()
    test_lanes.test_many_slots_of_one_message_are_sorted()
    test_lanes.test_long_messages_are_looked_up_in_a_bitmap()


if __name__ == "__main__":
    main()
