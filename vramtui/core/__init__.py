"""The words the program is built from: pure values and functions, no I/O, no clock, no screen."""
