"""Optimizers: states between steps, temporaries within one."""
