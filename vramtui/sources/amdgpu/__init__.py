"""AMD's GPUs by the files of Linux's amdgpu driver."""
