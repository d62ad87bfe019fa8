"""The agent on a host without vramtui: only these files, sent through the connection and never written to its disk.

They need Python 3.7 and NVML's library, and nothing else that is not in the standard library. `stream.main` writes a
recording to standard output, one whole sample each interval, and ends when its standard input does: with the
connection. The names of fields are those of `vramtui.core.observation.readings`; sizes are in bytes.
"""
