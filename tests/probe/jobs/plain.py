import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
SEEN = [
    [entry for entry in sys.path if "probe" in entry and entry != HERE],
    [name for name in sys.modules if "torch" in name or "typing" in name or "socket" in name],
    len(list(Path("/proc/self/task").iterdir())),
    sys.argv[1:],
    getattr(sys.modules.get("sitecustomize"), "__file__", None),
]
sys.stdout.write(f"{SEEN}\n")
