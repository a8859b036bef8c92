"""Builds the packages that scenarios declare, and an index of them that can be read as files."""
import io
import pathlib
import sys
import tarfile
import zipfile

SOURCE = pathlib.Path(sys.argv[1])
WHEELS = [
    ("sound", "1.0.0", "VERSION = '1.0.0'"),
    ("sound", "2.0.0", "VERSION = '2.0.0'"),
    ("faulty", "1.0.0", "raise RuntimeError('faulty cannot be loaded')"),
]
CROOKED = {
    "PKG-INFO": "Metadata-Version: 2.2\nName: crooked\nVersion: 1.0.0\n",
    "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n[project]\nname = 'crooked'\nversion = '1.0.0'\n",
    "backend.py": "def build_wheel(*args, **kwargs):\n    raise SystemExit('crooked refuses to be built')\n",
}

(SOURCE / "files").mkdir(parents=True)
pages = {}
for name, version, text in WHEELS:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text + "\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: scenarios\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(SOURCE / "files" / wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    pages.setdefault(name, []).append(wheel)
with tarfile.open(SOURCE / "files" / "crooked-1.0.0.tar.gz", "w:gz") as archive:
    for path, text in CROOKED.items():
        entry = tarfile.TarInfo(f"crooked-1.0.0/{path}")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
pages["crooked"] = ["crooked-1.0.0.tar.gz"]
for name, files in pages.items():
    page = SOURCE / "simple" / name / "index.html"
    page.parent.mkdir(parents=True)
    links = "".join(f'<a href="../../files/{file}">{file}</a>\n' for file in files)
    page.write_text("<!DOCTYPE html>\n" + links)
