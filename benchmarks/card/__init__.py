"""What one real card says, beside what is traced, estimated and emulated without one."""
