"""How long bytes take: the formulas of copies and collectives."""

import pytest

from grader.simgpu import links, profiles

LINK = (
    profiles.load("T4")
    .profile.with_figures(
        link={"host_gb_s": 10, "peer_gb_s": 5, "latency_us": 10, "bus_gb_s": 4, "step_us": 20}
    )
    .link
)
GIGA = 10**9


def test_a_copy_takes_its_latency_and_its_bytes():
    assert links.transfer_seconds(LINK, True, GIGA, pinned=True) == pytest.approx(0.1 + 10e-6)
    assert links.transfer_seconds(LINK, False, GIGA) == pytest.approx(0.2 + 10e-6)
    assert links.transfer_seconds(LINK, False, 0) == pytest.approx(10e-6)


def test_ordinary_host_memory_is_slower_where_the_profile_says_so():
    link = profiles.load("A100").profile.link
    assert links.transfer_seconds(link, True, GIGA) > 2 * links.transfer_seconds(
        link, True, GIGA, pinned=True
    )


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_collectives_have_the_factors_of_a_ring(ranks):
    share = (ranks - 1) / ranks
    steps = (ranks - 1) * 20e-6
    assert links.all_reduce_seconds(LINK, GIGA, ranks) == pytest.approx(2 * (share / 4 + steps))
    for half in (links.all_gather_seconds, links.reduce_scatter_seconds, links.all_to_all_seconds):
        assert half(LINK, GIGA, ranks) == pytest.approx(share / 4 + steps)
    assert links.broadcast_ring_seconds(LINK, GIGA, ranks) == pytest.approx(1 / 4 + steps)
    assert links.reduce_ring_seconds(LINK, GIGA, ranks) == pytest.approx(1 / 4 + steps)
    assert links.barrier_seconds(LINK, ranks) == pytest.approx(2 * steps, rel=1e-3)


def test_alone_nothing_moves():
    for collective in (
        links.all_reduce_seconds,
        links.all_gather_seconds,
        links.broadcast_ring_seconds,
        links.all_to_all_seconds,
        links.gather_seconds,
        links.broadcast_seconds,
        links.reduce_seconds,
    ):
        assert collective(LINK, GIGA, 1) == 0


def test_broadcast_and_reduce_of_dataparallel_do_not_depend_on_how_many():
    assert links.broadcast_seconds(LINK, 10**6, 2) == links.broadcast_seconds(LINK, 10**6, 8)
    assert links.broadcast_seconds(LINK, 10**6, 2) == pytest.approx(LINK.broadcast_us_per_mb.value * 1e-6)
