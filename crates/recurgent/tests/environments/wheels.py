"""Builds a few wheels and a simple index of them: `python3 wheels.py DIRECTORY`."""
import hashlib
import pathlib
import sys
import zipfile

SOURCE = pathlib.Path(sys.argv[1])

# name, version, needs, module text
WHEELS = [
    ("inner-part", "1.0", [], "inner_part", "NAME = 'inner'"),
    ("inner-part", "2.0", [], "inner_part", "NAME = 'inner 2'"),
    ("outer-part", "1.0", ["inner-part<2"], "outer_part", "import inner_part\nNAME = 'outer of ' + inner_part.NAME"),
    ("faulty-part", "1.0", [], "faulty_part", "raise RuntimeError('faulty_part cannot be loaded')"),
    ("noisy-part", "1.0", [], "noisy_part", "import sys\nprint('noise' * 50000)\nprint('noise' * 50000, file=sys.stderr)"),
    ("hanging-part", "1.0", [], "hanging_part", "import time\ntime.sleep(100000)"),
    ("dying-part", "1.0", [], "dying_part", "import os, sys\nprint('going down', file=sys.stderr, flush=True)\nos._exit(3)"),
    ("part", "1.0", [], "part", "ANSWER = 42"),
    ("late", "1.0", ["part"], "late", "def answer():\n    import part\n    return part.ANSWER"),
    ("missing-part", "1.0", ["recurgent-has-no-such-package"], "missing_part", ""),
]


def build(name, version, needs, module, text):
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    requires = "".join(f"Requires-Dist: {need}\n" for need in needs)
    files = {
        f"{module}.py": text + "\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    place = SOURCE / "wheels" / f"{stem}-py3-none-any.whl"
    place.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return place


pages = {}
for name, *rest in WHEELS:
    wheel = build(name, *rest)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    link = f'<a href="../../wheels/{wheel.name}#sha256={digest}">{wheel.name}</a>\n'
    pages[name] = pages.get(name, "<!DOCTYPE html>\n") + link
# A package whose only distribution must be built, and cannot be.
sdist = SOURCE / "wheels" / "unbuildable_part-1.0.tar.gz"
import io
import tarfile
with tarfile.open(sdist, "w:gz") as archive:
    for path, text in {
        "unbuildable_part-1.0/PKG-INFO": "Metadata-Version: 2.2\nName: unbuildable-part\nVersion: 1.0\n",
        "unbuildable_part-1.0/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n[project]\nname = 'unbuildable-part'\nversion = '1.0'\n",
        "unbuildable_part-1.0/backend.py": "def build_wheel(*args, **kwargs):\n    raise SystemExit('unbuildable-part refuses to be built')\n",
    }.items():
        entry = tarfile.TarInfo(path)
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
pages["unbuildable-part"] = f'<!DOCTYPE html>\n<a href="../../wheels/{sdist.name}#sha256={digest}">{sdist.name}</a>\n'
for name, page in pages.items():
    index = SOURCE / "simple" / name / "index.html"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(page)
