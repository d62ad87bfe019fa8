"""Rules of `torch_facts` against the answers that were recorded of each release of PyTorch."""

import json

import pytest

from benchmarks import releases

RECORDED = json.loads(releases.RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", RECORDED)
def test_each_rule_holds_for_the_recorded_answers(version: str) -> None:
    answers = RECORDED[version]
    assert answers["torch"] == version
    assert [one for one in releases.rules(answers, cudnn=answers["cudnn"]) if one[2] != one[3]] == []


def test_a_rule_that_a_release_breaks_is_named_with_its_file() -> None:
    good = RECORDED["2.13.0+cu130"]
    newer = [one for one in releases.rules(good | {"torch": "2.15.0"}, cudnn=True) if one[2] != one[3]]
    assert ("workspace, kept", "torch_facts/cublas.py", 0, 32 << 20) in newer
    assert sum(file == "torch_facts/sdpa_backend.py" for _, file, _, _ in newer) == 5
    older = [one for one in releases.rules(good | {"torch": "2.12.1"}, cudnn=True) if one[2] != one[3]]
    assert ("free block of two of one size", "torch_facts/allocator_sizes.py", "oldest", "lowest") in older
