"""Hosts are named as Slurm and ssh name them, and no name becomes an option or a shell's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.sources.ssh import MOST_HOSTS, host_names, ssh_arguments

GROUPS = {"train": ("gpu[01-02]", "big"), "all": ("a,b",)}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[8-11]", ["gpu8", "gpu9", "gpu10", "gpu11"]),
        ("user@gpu[02-03]", ["user@gpu02", "user@gpu03"]),
        ("r[1-2]n[01,03]", ["r1n01", "r1n03", "r2n01", "r2n03"]),  # `scontrol show hostnames` has the same order
        ("tux[001-003,7]", ["tux001", "tux002", "tux003", "tux7"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("gpu[09-11]", ["gpu09", "gpu10", "gpu11"]),
        ("@train,@all", ["gpu01", "gpu02", "big", "a", "b"]),
        ("a,a", ["a"]),
        ("fe80::1%eth0", ["fe80::1%eth0"]),
        ("gpu01.cluster.example.org", ["gpu01.cluster.example.org"]),
    ],
)
def test_what_is_meant(asked: str, found: list[str]) -> None:
    assert list(host_names([asked], GROUPS)) == found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("-oProxyCommand=touch /tmp/x", "is not a host name"),
        ("user@-oProxyCommand=x", "is not a host name"),
        ("-l@gpu01", "is not a host name"),
        ("gpu01;reboot", "is not a host name"),
        ("gpu 01", "is not a host name"),
        ("$(reboot)", "is not a host name"),
        ("", "nothing is not a host name"),
        ("gpu[3-1]", "3-1 is not a range"),
        ("gpu[x]", r"\[x\] is not a range; write gpu\[01-08\]"),
        ("gpu[01", "is not a host name"),
        ("gpu[1-99999]", "is not a range of at most"),
        ("a[1-99]b[1-99]", f"more than {MOST_HOSTS} hosts"),
        ("@trian", r"no group of hosts called trian \(did you mean train\?\)"),
        ("\x1b[2J", "is no"),
    ],
)
def test_what_no_host_is_called(asked: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        host_names([asked], GROUPS)
    assert str(raised.value).isprintable()


@given(st.text())
def test_no_name_is_ever_an_option(asked: str) -> None:
    try:
        found = host_names([asked])
    except UserError:
        return
    for name in found:
        arguments = ssh_arguments(name, 1.0, 10)
        assert arguments[-3:-1] == ("--", name)
        assert not name.startswith("-")
        assert not set(name) & set(" ;&|$`'\"\\\n")


@pytest.mark.parametrize("asked", ["-x" + "a" * 9000, "r[1-" + "9" * 5 + "x" * 9000 + "]", "a," * 3000 + "-"])
def test_a_sentence_is_never_endless(asked: str) -> None:
    with pytest.raises(UserError) as raised:
        host_names([asked], {})
    assert len(str(raised.value)) < 1000
