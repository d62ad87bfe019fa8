"""The graph of one process's memory over time, and the dots and blocks that it is drawn with."""
