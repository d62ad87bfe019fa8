"""Servers, files and pipelines of public reports: every case is answered, and those that are not right are named."""

import pytest

from tests.recorded.cases import Outcome, outcomes

# What is wrong or partly right today, with the reason; the list may only shrink.
KNOWN: dict[str, str] = {
    "diffusion/flux-quantized torchao int8": "run.quantization = int8 is bitsandbytes', which keeps T5's wo in fp32",
}
# What an answer states a range for, which the true figure is in; the list may only shrink.
RANGES = {
    "serving/langx101-gb10",
    "serving/spark-vllm-396",
    "serving/vllm-2031-llama2-70b 0.2.5",
    "serving/vllm-21348",
    "serving/vllm-28228",
}


def name_of(one: Outcome) -> str:
    return f"{one.kind}/{one.name}"


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    return outcomes(("serving", "llamacpp", "diffusion"))


def test_each_case_is_right_or_known(found: list[Outcome]) -> None:
    off = {
        name_of(one): (one.verdict, one.figures, one.answer[:300])
        for one in found
        if one.verdict != ("in range" if name_of(one) in RANGES else "right")
    }
    assert {name: off[name] for name in off if name not in KNOWN} == {}
    assert sorted(off) == sorted(KNOWN), "remove what is right by now from the list"


def test_the_cases_are_enough(found: list[Outcome]) -> None:
    assert len(found) >= 80
    assert sum(one.verdict == "right" for one in found) >= 0.85 * len(found)
