"""A CUDA driver for a card that is not there: a library in C that models memory, streams and properties, and runs
nothing. It is compiled when it is first needed and loaded into the processes of one command alone.
"""
