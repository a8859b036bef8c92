"""A build backend that reaches for everything it should not have, and writes into the wheel it builds what it got.

As a program it makes the same attempts, those that do no harm, and prints what it got."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())


def connect(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5) as stream:
        stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return True


def speak(address):
    host, port = address.rsplit(":", 1)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.sendto(b"leak", (host, int(port)))
    return True


def parent_tells(name):
    # The package manager itself, with its arguments.
    with open(f"/proc/{os.getppid()}/{name}", "rb") as file:
        return bool(file.read(1 << 16))


def overwrite(path):
    with open(path, "a") as file:
        file.write("")
    return True


def create(path):
    made = pathlib.Path(path) / "planted"
    made.write_text("planted")
    made.unlink()
    return True


QUIET = {
    "read": lambda path: bool(open(path, "rb").read()),
    "list": lambda path: bool(os.listdir(path)),
    "append": overwrite,
    "create": create,
    "connect": connect,
    "speak": speak,
    "signal": lambda pid: os.kill(pid, 0) is None,
    "variable": lambda name: name in os.environ,
}
LOUD = {
    "parent": parent_tells,
    "secret": lambda text: any(text in value for value in os.environ.values()),
    "stdin": lambda _: bool(sys.stdin.buffer.read(1)),
}


def reached(kinds):
    got = []
    for kind, target in PLAN["attempts"]:
        try:
            if kind in kinds and kinds[kind](target):
                got.append([kind, target])
        except BaseException:
            pass
    return got


def multiply():
    """Forks until it is not let, or far too often."""
    children = []
    try:
        while len(children) < 400:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def leave_a_daemon():
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["sleep", PLAN["daemon"]], **quiet)
    try:
        subprocess.Popen(["setsid", "sleep", PLAN["daemon"]], **quiet)
    except OSError:
        pass


def get_requires_for_build_wheel(config_settings=None):
    return PLAN["requires"]


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory) / "hostile_part-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-part\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return info.name


def build_wheel(directory, config_settings=None, metadata_directory=None):
    leave_a_daemon()
    got = {"reached": reached(QUIET | LOUD), "forked": multiply()}
    for at in range(PLAN["fill_mb"]):
        with open(f"{os.environ['TMPDIR']}/fill-{at}", "wb") as file:
            file.write(bytes(1 << 20))
    while PLAN["fill_mb"]:
        time.sleep(1)  # until it is noticed
    name = "hostile_part-1.0-py3-none-any.whl"
    info = "hostile_part-1.0.dist-info"
    files = {
        "hostile_part.py": f"GOT = {got!r}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: hostile-part\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name


if __name__ == "__main__":
    print(json.dumps(reached(QUIET)))
