"""What all tests share: how Hypothesis looks for examples."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ours",
    deadline=None,  # how long an example takes is the machine's business
    suppress_health_check=[HealthCheck.too_slow],  # as above
    print_blob=True,
    # A submission is judged by the same examples each time; new ones are looked for wherever else the tests run.
    derandomize="CI" in os.environ,
    database=None if "CI" in os.environ else settings.get_profile("default").database,
)
settings.load_profile("ours")
