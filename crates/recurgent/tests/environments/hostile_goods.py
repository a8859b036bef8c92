"""Builds one sdist and its simple index: `python3 hostile_goods.py DIRECTORY`, where its files are."""
import hashlib
import os
import sys
import tarfile

os.chdir(sys.argv[1])
os.makedirs("files", exist_ok=True)
os.makedirs("simple/hostile-part", exist_ok=True)
with open("PKG-INFO", "w") as file:  # says nothing of what it needs: its backend must be asked
    file.write("Metadata-Version: 2.1\nName: hostile-part\nVersion: 1.0\n")
with open("pyproject.toml", "w") as file:
    file.write("[build-system]\nrequires = []\nbuild-backend = 'hostile'\nbackend-path = ['.']\n")
name = "hostile_part-1.0.tar.gz"
with tarfile.open(f"files/{name}", "w:gz") as archive:
    for path in ["PKG-INFO", "pyproject.toml", "hostile.py", "plan.json"]:
        archive.add(path, f"hostile_part-1.0/{path}")
with open(f"files/{name}", "rb") as file:
    digest = hashlib.sha256(file.read()).hexdigest()
with open("simple/hostile-part/index.html", "w") as page:
    page.write(f'<!DOCTYPE html>\n<a href="../../files/{name}#sha256={digest}">{name}</a>\n')
