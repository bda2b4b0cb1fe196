"""Each test that docs/cases.md names stands in the file that it names."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMED = re.compile(r"`([^`]+\.(?:cpp|py|cu))` (\w+)")


def rows():
    for line in (ROOT / "docs/cases.md").read_text().splitlines():
        if line.startswith("| B"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


class CasesTest(unittest.TestCase):
    def test_every_named_test_exists(self):
        for case, _, _, tested_by in rows():
            for file, name in NAMED.findall(tested_by):
                with self.subTest(case=case, file=file, name=name):
                    self.assertTrue((ROOT / file).is_file(), f"{file} does not exist")
                    self.assertRegex((ROOT / file).read_text(), rf"\b{name}\b")

    def test_every_case_stands_once_and_is_tested_open_or_a_policy(self):
        seen = set()
        for case, *cells in rows():
            with self.subTest(case=case):
                self.assertEqual(len(cells), 3)
                self.assertNotIn(case, seen)
                self.assertTrue(NAMED.search(cells[2]) or cells[2] == "*open*" or cells[2].startswith("Policy: "), cells[2])
            seen.add(case)
        self.assertEqual(len(seen), 121)


if __name__ == "__main__":
    unittest.main()
