"""Engine `cuda`: PyTorch's CUDA build on a driver in C that models memory, streams and properties, and runs nothing.

The driver is compiled when it is first needed and loaded only into the processes of the job.
"""
