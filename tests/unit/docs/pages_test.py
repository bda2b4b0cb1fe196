"""The pages of docs/ and beside it: tables that are whole, links and files that exist, commands that the program takes."""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md"))
FOLDERS = "actors|benchmarks|cmake|configs|docs|messages|src|tests|tools"


def told(*words):
    return subprocess.run([os.environ["TROUPE"], *words], capture_output=True, text=True, check=True).stdout


def blocks(page):
    """(is it code, number of its first line, lines) of each run of lines."""
    code, found = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            code = not code
            found.append((code, number, []))
        elif not found:
            found.append((code, number, [line]))
        else:
            found[-1][2].append(line)
    return found


class PagesTest(unittest.TestCase):
    def test_every_row_of_a_table_has_a_header_above_and_as_many_cells(self):
        for page in PAGES:
            for code, first, lines in blocks(page):
                cells = None
                for number, line in enumerate([] if code else lines, first):
                    with self.subTest(page=page.name, line=number + 1):
                        found = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else None
                        if found is not None and cells is None:
                            below = lines[number - first + 1:][:1]
                            self.assertTrue(below and re.fullmatch(r"\|[\s:|-]+\|", below[0]), f"a row without a header: {line[:80]}")
                        self.assertTrue(found is None or cells in (None, found), f"{found} cells, {cells} in the row above: {line[:80]}")
                        cells = found

    def test_every_link_and_every_file_that_is_named_exists(self):
        for page in PAGES:
            text = page.read_text()
            for link in re.findall(r"\]\(([^)#\s]+)", text):
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(link.startswith("http") or (page.parent / link).exists())
            for name in set(re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", text)):
                with self.subTest(page=page.name, file=name):
                    self.assertTrue((ROOT / name).exists() or list(ROOT.glob(name + "*")))

    def test_every_command_that_is_shown_is_one_with_options_that_it_has(self):
        keys = {line.split()[0] for line in told("config").splitlines() if line} | set(re.findall(r"`([\w.]+)`", (ROOT / "docs/config.md").read_text()))
        options = {}
        for page in PAGES:
            for code, first, lines in blocks(page):
                for shown in re.findall(r"(?:^|\$ |bin/)troupe ([a-z]+) ([^#\n]*)", "\n".join(lines).replace("\\\n", " "), re.M) if code else ():
                    command = (shown[0], "inspect") if shown[0] == "data" else shown[:1]
                    with self.subTest(page=page.name, command=f"troupe {' '.join(shown)}"):
                        if command not in options:
                            options[command] = set(re.findall(r"--[a-z][a-z-]*", told(*command, "--help")))
                        for option in re.findall(r"(?<=\s)--[a-z][\w.-]*", " " + shown[1]):
                            key = option[2:].replace(".no_", ".")
                            self.assertTrue(key in keys if "." in option else option in options[command], f"{option} is not known")


if __name__ == "__main__":
    unittest.main()
