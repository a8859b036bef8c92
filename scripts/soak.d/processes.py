"""Processes, as `scripts/soak` finds, ends and waits for them."""
import collections, os, pathlib, signal


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except OSError:
        return False


def descendants(root):
    children = collections.defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
            if len(fields) > 1:
                children[int(fields[1])].append(int(entry))
    found, waiting = [], list(children[root])
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return found


def reap(pid):
    """Whether a process has ended. Orphans become children of this one, which must wait for them."""
    if read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] == [b"Z"]:
        try:
            os.waitpid(pid, os.WNOHANG)
        except OSError:
            pass
        return True
    return not os.path.exists(f"/proc/{pid}")
