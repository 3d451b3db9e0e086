"""Project identity: one repository is one project from wherever in it, and nothing else ever shares its memories."""

from __future__ import annotations

import json
import os
import subprocess
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from holdtrue import Memory, cli
from holdtrue.project import project_of
from holdtrue.records import NAME_LIMIT

Git = Callable[..., str]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Git:
    """Run git with nothing of this user's or the caller's settings."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    variables = {
        **os.environ,
        "HOME": str(tmp_path),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "t",
        "GIT_CONFIG_KEY_1": "user.email",
        "GIT_CONFIG_VALUE_1": "t@example.com",
        "GIT_CONFIG_KEY_2": "protocol.file.allow",
        "GIT_CONFIG_VALUE_2": "always",
    }

    def run(folder: Path, *arguments: object) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder for repositories, outside every repository, without links in its path."""
    folder = Path(os.path.realpath(tmp_path)) / "t"
    folder.mkdir()
    assert not any((above / ".git").exists() for above in [folder, *folder.parents])
    return folder


def repository(git: Git, folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "begin")
    return folder


def forge(folder: Path, **files: str | bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def forged_git_directory(folder: Path) -> Path:
    forge(folder, HEAD="ref: refs/heads/main\n")
    (folder / "objects").mkdir()
    (folder / "refs").mkdir()
    return folder


# -- the case of two repositories with one basename, of worktrees and of what only looks alike -------------------------


def test_memories_of_each_folder_are_found_from_its_own_project_and_from_no_other(
    git: Git, there: Path, tmp_path: Path, run_python: Callable[..., CompletedProcess[str]]
) -> None:
    app = repository(git, there / "acme" / "app")
    repository(git, there / "other" / "app")
    (app / "packages" / "ui").mkdir(parents=True)
    git(app, "worktree", "add", "-q", there / "wt-hotfix")
    for name in ("test-project", "test/project", "notes"):
        (there / name).mkdir(parents=True)
    (there / "link").symlink_to(app)
    names = ["acme/app", "acme/app/packages/ui", "wt-hotfix", "link"]
    apart = ["other/app", "test-project", "test/project", "notes", "test"]
    projects = {name: project_of(there / name) for name in names + apart}
    assert {projects[name] for name in names} == {str(app)}
    assert [projects[name] for name in apart] == [str(there / name) for name in apart]
    with Memory(tmp_path / "store") as memory:
        for name in names + apart:
            memory.add(f"a fact of {name}", project=projects[name])
        for name in names + apart:
            found = {record.text for record in memory.list(project=projects[name])}
            wanted = names if name in names else [name]
            assert found == {f"a fact of {each}" for each in wanted}
            assert {hit.text for hit in memory.search("a fact", project=projects[name])} == found
    # The current folder counts when none is given, also one that came by a link.
    program = "import os, sys; from holdtrue.project import project_of\nos.chdir(sys.argv[1]); print(project_of())"
    assert run_python(program, there / "link" / "packages").stdout == f"{app}\n"


def test_a_current_folder_that_is_gone_has_no_project_and_breaks_nothing(
    run_python: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    program = "import os, sys; from holdtrue.project import project_of\n"
    program += "os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
    program += "print(repr(project_of()), repr(project_of('below')))"
    done = run_python(program, tmp_path / "gone")
    assert (done.stdout, done.stderr) == ("'' ''\n", "")


def test_a_folder_that_is_named_and_gone_keeps_the_project_it_had(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    assert project_of(app / "removed" / "below") == str(app)
    assert project_of(there / "removed") == str(there / "removed")


def test_neither_variables_of_git_nor_a_missing_git_change_the_answer(
    git: Git, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, other = repository(git, there / "app"), repository(git, there / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("PATH", "")
    assert project_of(app) == str(app)


# -- kinds of repositories ---------------------------------------------------------------------------------------------


def test_a_submodule_is_its_own_repository_and_its_worktrees_belong_to_it(git: Git, there: Path) -> None:
    app, inner = repository(git, there / "app"), repository(git, there / "inner")
    git(app, "submodule", "--quiet", "add", inner, "libs/inner")
    (app / "libs" / "inner" / "src").mkdir()
    git(app / "libs" / "inner", "worktree", "add", "-q", there / "inner-wt")
    for folder in (app / "libs" / "inner", app / "libs" / "inner" / "src", there / "inner-wt"):
        assert project_of(folder) == str(app / "libs" / "inner")
    assert project_of(app / "libs") == str(app)
    assert project_of(app / ".git" / "modules" / "libs" / "inner") == str(app / "libs" / "inner")


def test_a_bare_repository_is_the_project_of_itself_and_of_its_worktrees(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    git(there, "clone", "-q", "--bare", app, "bare.git")
    git(there / "bare.git", "worktree", "add", "-q", there / "wt")
    for folder in (there / "bare.git", there / "bare.git" / "refs" / "heads", there / "wt"):
        assert project_of(folder) == str(there / "bare.git")


def test_worktrees_beside_a_hidden_bare_repository_belong_to_the_folder_around_both(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    around = there / "around"
    around.mkdir()
    git(around, "clone", "-q", "--bare", app, ".bare")
    (around / ".git").write_text("gitdir: ./.bare\n")
    git(around, "worktree", "add", "-q", "main-wt")
    git(around, "worktree", "add", "-q", there / "far-wt")
    for folder in (around, around / "main-wt", around / ".bare", there / "far-wt"):
        assert project_of(folder) == str(around)


def test_within_the_git_directory_one_is_within_the_repository(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    git(app, "worktree", "add", "-q", there / "wt")
    for folder in (".git", ".git/hooks", ".git/worktrees/wt", ".git/objects"):
        assert project_of(app / folder) == str(app)


def test_worktrees_of_worktrees_moved_ones_and_relative_ones(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    git(app, "worktree", "add", "-q", there / "one")
    git(there / "one", "worktree", "add", "-q", there / "two")
    assert project_of(there / "two") == str(app)
    git(app, "worktree", "move", there / "two", there / "three")
    assert project_of(there / "three") == str(app)
    # As `worktree.useRelativePaths` of newer versions of git writes them.
    (there / "one" / ".git").write_text("gitdir: ../app/.git/worktrees/one\n")
    (app / ".git" / "worktrees" / "one" / "gitdir").write_text("../../../../one/.git\n")
    assert project_of(there / "one") == str(app)
    git(app, "config", "extensions.worktreeConfig", "true")
    assert project_of(there / "one") == str(app)


def test_a_repository_moved_as_a_whole_is_a_project_of_its_new_place(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    git(app, "worktree", "add", "-q", there / "wt")
    app.rename(there / "moved")
    assert project_of(there / "moved") == str(there / "moved")
    assert project_of(there / "wt") == str(there / "wt")


def test_a_git_directory_kept_elsewhere_leaves_the_checkout_its_name(git: Git, there: Path) -> None:
    (there / "app").mkdir()
    git(there / "app", "init", "-q", "--separate-git-dir", there / "store")
    assert project_of(there / "app") == str(there / "app")


def test_a_folder_called_dot_git_that_is_no_repository_is_passed_over(git: Git, there: Path) -> None:
    app = repository(git, there / "app")
    (app / "sub" / ".git").mkdir(parents=True)
    forge(app / "file", **{".git": "what is this?\n"})
    (app / "pipe").mkdir()
    os.mkfifo(app / "pipe" / ".git")
    for name in ("sub", "file", "pipe"):
        assert project_of(app / name) == str(app)


# -- hostile contents --------------------------------------------------------------------------------------------------


@pytest.fixture
def victim(git: Git, there: Path) -> Path:
    return repository(git, there / "victim")


@pytest.fixture
def evil(there: Path) -> Iterator[Path]:
    """A folder whose contents somebody else made. Nothing in it may ever answer for another project."""
    folder = there / "evil"
    folder.mkdir()
    yield folder
    began = time.monotonic()
    for place in (folder, folder / "sub", folder / "sub" / "below"):
        assert Path(project_of(place)).is_relative_to(folder)
    assert time.monotonic() - began < 1.0


def test_a_file_that_names_the_git_directory_of_another_claims_nothing(evil: Path, victim: Path) -> None:
    forge(evil, **{".git": f"gitdir: {victim}/.git\n"})


def test_a_file_that_names_a_worktree_of_another_claims_nothing(git: Git, evil: Path, victim: Path) -> None:
    git(victim, "worktree", "add", "-q", victim.parent / "wt")
    forge(evil, **{".git": f"gitdir: {victim}/.git/worktrees/wt\n"})


def test_a_forged_worktree_that_names_the_repository_of_another_claims_nothing(evil: Path, victim: Path) -> None:
    forge(evil, **{".git": "gitdir: g\n"})
    forge(evil / "g", HEAD="x", commondir=f"{victim}/.git\n", gitdir=f"{evil}/.git\n")


def test_a_forged_worktree_below_a_link_to_the_repository_of_another_claims_nothing(evil: Path, victim: Path) -> None:
    forge(evil / "real" / "worktrees" / "g", HEAD="x", commondir=f"{victim}/.git", gitdir=f"{evil}/.git")
    forge(evil, **{".git": "gitdir: real/worktrees/g\n"})
    (evil / "common").symlink_to(victim / ".git")


def test_a_forged_repository_that_says_it_is_checked_out_at_another_claims_nothing(evil: Path, victim: Path) -> None:
    common = forged_git_directory(evil / "common")
    forge(common, config=f"[core]\n\tworktree = {victim}\n")
    forge(common / "worktrees" / "g", commondir="../..", gitdir=f"{evil}/sub/.git")
    forge(evil / "sub", **{".git": "gitdir: ../common/worktrees/g\n"})
    assert project_of(evil / "sub") == str(common)


def test_a_forged_repository_with_a_worktree_of_another_keeps_to_itself(evil: Path, victim: Path) -> None:
    forge(forged_git_directory(evil / ".git"), config=f"[core]\n\tworktree = {victim}\n")


def test_a_link_to_the_git_directory_of_another_claims_nothing(evil: Path, victim: Path) -> None:
    (evil / ".git").symlink_to(victim / ".git")


def test_a_repository_hidden_in_a_folder_of_another_answers_for_itself_alone(victim: Path) -> None:
    forge(forged_git_directory(victim / "vendor" / "thing"), config="[core]\n\tworktree = ../..\n")
    assert project_of(victim / "vendor" / "thing") == str(victim / "vendor" / "thing")
    assert project_of(victim / "vendor") == str(victim)


@pytest.mark.parametrize(
    "content",
    [
        b"gitdir:",
        b"gitdir: \n",
        b"gitdir: " + b"../" * 5_000,
        b"gitdir: a\0b",
        b"gitdir: \xff\xfe/\xed\xa0\xbd\n",
        b"gitdir: " + b"x" * 3_000_000,
        b"gitdir: .git",
        b"gitdir: .",
        b"gitdir: /proc/self/root/proc/self/cwd\n",
        b"gitdir: ~/x\n$(touch x)`touch y`",
    ],
    ids=range(10),
)
def test_odd_files_that_name_a_git_directory_are_a_project_of_their_own(evil: Path, content: bytes) -> None:
    forge(evil, **{".git": content})


@pytest.mark.parametrize("name", ["commondir", "gitdir", "config", "HEAD", "objects"])
@pytest.mark.parametrize("odd", ["pipe", "folder", "loop", "huge", "zeros", "empty"])
def test_odd_things_in_a_git_directory_neither_block_nor_claim(evil: Path, name: str, odd: str) -> None:
    common = forged_git_directory(evil / "common")
    own = common / "worktrees" / "g"
    forge(own, commondir="../..", gitdir=f"{evil}/.git")
    forge(common, config="[core]\n\tworktree = ..\n")
    forge(evil, **{".git": "gitdir: common/worktrees/g\n"})
    place = (own if name in ("commondir", "gitdir") else common) / name
    place.rmdir() if name == "objects" else place.unlink()
    if odd == "pipe":
        os.mkfifo(place)
    elif odd == "folder":
        place.mkdir()
    elif odd == "loop":
        place.symlink_to(place)
    else:
        place.write_bytes({"huge": b"../../" * 1_000_000, "zeros": b"\0" * 100, "empty": b""}[odd])
    assert project_of(evil) in (str(evil), str(common))


# -- names -------------------------------------------------------------------------------------------------------------


def test_folders_whose_paths_cannot_be_names_get_names_of_their_own(there: Path) -> None:
    deep = there.joinpath(*["d" * 200] * 6)
    deep.mkdir(parents=True)
    raw = os.fsencode(there)
    folders = [os.fsdecode(raw + b"/" + name) for name in (b"\xff", b"\xfe", b"caf\xc3\xa9", b"cafe\xcc\x81", b"a\nb")]
    folders += [str(there / "\\xff"), str(deep), str(deep / "x"), str(there / "�")]
    for folder in folders:
        Path(folder).mkdir(exist_ok=True)
    names = [project_of(folder) for folder in folders]
    assert len(set(names)) == len(folders)
    with Memory(there / "store") as memory:
        for name in names:
            assert memory.add("a fact", project=name).project == name
        assert memory.list().total == len(names)
    for name, folder in zip(names, folders, strict=True):
        assert len(name) <= NAME_LIMIT
        assert name == unicodedata.normalize("NFC", name)
        assert (name == folder) or "//" in name
    assert project_of(folders[2]) == folders[2]


@pytest.mark.parametrize("folder", ["a\0b", "\ud800", "x" * 100_000, "~", "", "/", "//", "//tmp", "/../.."])
def test_no_path_whatever_raises(folder: str) -> None:
    answer = project_of(folder)
    assert len(answer) <= NAME_LIMIT
    assert not answer.startswith("//")


# -- on the command line -----------------------------------------------------------------------------------------------


def test_here_stands_for_the_project_of_the_current_folder(
    git: Git, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, object]]:
        code = cli.run([*arguments, "--json", "--store", str(tmp_path / "store")])
        return code, json.loads(capfd.readouterr().out)

    monkeypatch.setenv("HOLDTRUE_CONFIG", str(tmp_path / "none.json"))
    app = repository(git, there / "app")
    (app / "src").mkdir()
    monkeypatch.chdir(app / "src")
    assert run("add", "the port is 6432", "--here")[1]["project"] == str(app)
    assert run("add", "the port is 7000")[1]["project"] == ""
    monkeypatch.chdir(app)
    assert run("list", "--here")[1]["total"] == 1
    assert [hit["text"] for hit in run("search", "port", "--here")[1]["hits"]] == ["the port is 6432"]  # type: ignore[attr-defined]
    monkeypatch.chdir(there)
    assert run("list", "--here")[1]["total"] == 0
    for arguments in (("add", "a"), ("search", "a"), ("list",)):
        for project in (str(app), ""):
            code, told = run(*arguments, "--here", "--project", project)
            assert (code, told["error"]["code"]) == (2, "USAGE")  # type: ignore[index]
    gone = there / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, told = run("add", "a", "--here")
    assert (code, told["error"]["code"]) == (2, "INVALID_INPUT")  # type: ignore[index]
    assert run("list")[1]["total"] == 2
