"""What no file of the repository may hold, and what every module must."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SKIPPED = {".png", ".svg", ".lock"}

# A person's or a machine's own folders. `/path`, `/models`, `/tmp` and `/dev/shm` are everyone's.
_MACHINE = re.compile(r"(?<![\w./])/(?:home|Users|root|work|mnt|private)/\w")
_HOSTS = re.compile(
    "|".join(
        re.escape(host)
        for host in (
            "files." + "pythonhosted",
            "pypi" + ".org",
            "registry." + "npmjs",
            "registry." + "yarnpkg",
            "deb." + "debian.org",
            "conda" + ".anaconda.org",
        )
    )
)


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in _SKIPPED]


def texts():
    for path in tracked():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def offenders(pattern):
    return [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_path_of_somebodys_machine():
    assert offenders(_MACHINE) == []


def test_no_package_registry_is_named():
    assert offenders(_HOSTS) == []


def test_every_module_says_what_lives_there():
    silent = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix == ".py"
        and path.is_relative_to(ROOT / "devkit")
        and not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=str)
def test_notebooks_are_committed_without_outputs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []


def test_every_example_has_a_client_that_asserts():
    models = sorted(path.parent for path in ROOT.glob("examples*/*/config.pbtxt"))
    assert models
    for model in models:
        client = (model / "client.py").read_text(encoding="utf-8")
        assert "assert" in client, model
        assert (model / "README.md").is_file(), model


def test_every_dependency_says_why_it_is_there():
    inside, unexplained = False, []
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if re.match(r"(dependencies|\w+) = \[$", line):
            inside = line.startswith(("dependencies", "lab", "tui", "torch", "jax", "gpu", "dev"))
        elif line.startswith("]"):
            inside = False
        elif re.match(r'\s+"(?!triton-devkit)', line) and inside and "#" not in line:
            unexplained.append(line.strip())
    assert unexplained == []
