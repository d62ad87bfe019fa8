"""How many examples a property is tried with: as many as it asks for, or a tenth of them in the fast tier."""

from hypothesis import settings

USUAL = 100  # Hypothesis' own number, which the profile of `make test` keeps


def examples(number: int) -> settings:
    """Settings for `number` examples, in the share that the profile in use has of the usual ones. How long one takes is
    the machine's business.
    """
    profile = settings.default
    usual = USUAL if profile is None else profile.max_examples
    return settings(max_examples=max(1, number * usual // USUAL), deadline=None)
