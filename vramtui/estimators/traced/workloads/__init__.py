"""A preset's model and run as a job of plain PyTorch, which is then traced like anyone's."""
