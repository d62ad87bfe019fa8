"""The standard library's TOML reader, or the package it came from where Python is older than 3.11."""

import sys

if sys.version_info >= (3, 11):
    from tomllib import loads
else:
    from tomli import loads

__all__ = ["loads"]
