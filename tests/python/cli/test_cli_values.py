"""Errors as the command line writes them."""

import pytest

from ackline import LinkLost, LinkTimeout, ProtocolError, UsageError
from ackline.cli.values import as_written, with_dashes

NAMES = ("ping_after", "lost_after", "timeout")
PATH = "relink+unix:///tmp/ping_after/no--such_dir/x.sock"


@pytest.mark.parametrize("kind", [LinkLost, LinkTimeout])
def test_only_an_option_in_parentheses_is_renamed(kind):
    error = kind(f"{PATH}: no transport in time (lost_after), after lost_after")
    assert (
        with_dashes(error, NAMES)
        == f"{PATH}: no transport in time (--lost-after), after lost_after"
    )
    assert with_dashes(error, ("timeout",)) == str(error)
    assert with_dashes(kind(f"{PATH}: late (timeout)"), NAMES) == f"{PATH}: late (--timeout)"


def test_an_option_of_the_other_end_is_renamed_behind_its():
    error = LinkLost(f"{PATH}: above its max_part_bytes or its send_window (max_part_bytes)")
    told = f"{PATH}: above its --max-part-bytes or its send_window (max_part_bytes)"
    assert with_dashes(error, NAMES, peers=("max_part_bytes",)) == told


def test_other_errors_keep_their_text():
    error = UsageError(f"{PATH}: ping_after (lost_after)")
    assert with_dashes(error, NAMES) == str(error)


def test_an_error_of_the_peer_names_its_own_option_alone():
    error = ProtocolError(
        "no pong in 7s: ping_after, pong_timeout (ping_after)",
        protocol="relink",
        code="relink.timeout",
        offset=0,
        option="ping_after",
    )
    told = with_dashes(error, ("ping_after", "pong_timeout"))
    assert told.endswith("no pong in 7s: --ping-after, pong_timeout (--ping-after)")


def test_a_refused_option_is_renamed_at_both_ends_of_the_text():
    text = f"credit_ceiling is 1; {PATH}; it is at least credit_floor"
    error = UsageError(text, option="credit_ceiling", other="credit_floor")
    assert as_written(error) == f"--credit-ceiling is 1; {PATH}; it is at least --credit-floor"
