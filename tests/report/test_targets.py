"""Files for reports: refused early with the reason, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.report import targets
from grader.report.targets import UnwritableTarget


def test_what_can_be_written_is_left_untouched_by_the_check(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text("old")
    targets.check({"--json": there, "--html": tmp_path / "new.html", "--junit": Path("-")})
    assert there.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.json"]


def test_what_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    for path, reason in [
        (tmp_path, "is a folder"),
        (tmp_path / "nowhere" / "a.json", "there is no folder"),
        (tmp_path / "train.py", "would overwrite a Python file"),
    ]:
        with pytest.raises(UnwritableTarget, match=reason):
            targets.check({"--json": path})


def test_two_reports_do_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(UnwritableTarget, match="--html and --json would both write to"):
        targets.check({"--json": tmp_path / "a", "--html": tmp_path / "x" / ".." / "a"})
    with pytest.raises(UnwritableTarget, match="standard output"):
        targets.check({"--json": Path("-"), "--html": Path("-")})


def test_a_report_replaces_the_old_one_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("a much longer old report")
    file.chmod(0o640)
    targets.write(file, "new ✔\n")
    assert file.read_text(encoding="utf-8") == "new ✔\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_link_stays_a_link_and_a_device_is_written_into(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    targets.write(link, "x")
    assert link.is_symlink()
    assert real.read_text() == "x"
    targets.write(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
