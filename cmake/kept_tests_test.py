#!/usr/bin/env python3
"""kept_tests.py on a made-up build: what is run again after which change, and what counts."""
import contextlib
import io
import os
import stat
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import kept_tests  # noqa: E402

# Stand-ins for ctest, which lists the programs of its build folder or runs those that are chosen, and
# for ninja, which knows that good_test starts a program.
CTEST = """#!/usr/bin/env python3
import os, re, subprocess, sys
folder = sys.argv[sys.argv.index("--test-dir") + 1]
names = sorted(n for n in os.listdir(folder) if n.endswith("_test"))
if "--show-only" in sys.argv:
    for i, name in enumerate(names):
        print(f"  Test  #{i}: {name}")
    sys.exit()
chosen = [n for n in names if re.search(sys.argv[sys.argv.index("--tests-regex") + 1], n)]
with open(os.path.join(folder, "ran"), "a") as ran, \\
        open(sys.argv[sys.argv.index("--output-junit") + 1], "w") as junit:
    junit.write("<testsuite>")
    for name in chosen:
        ran.write(name + " ")
        code = subprocess.run([os.path.join(folder, name)], cwd=folder).returncode
        junit.write(f'<testcase name="{name}" status="{"fail" if code else "run"}"/>')
    junit.write("</testsuite>")
"""
NINJA = """#!/bin/sh
[ "$5" != good_test ] || echo '    || helped_by'
"""
CASE = '<testcase classname="Suite" name="{}" result="completed"/>'
FAILED = '<testcase classname="Suite" name="Bad" result="completed"><failure/></testcase>'
SKIPPED = '<testcase classname="Suite" name="Lazy" result="skipped"/>'


class KeptTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.build = os.path.join(self.root, "build")
        for name in ("build/gtest", "build/Testing", "bin", "cmake", "deploy", "tests/lint"):
            os.makedirs(os.path.join(self.root, name))
        self.program("bin/ctest", CTEST)
        self.program("bin/ninja", NINJA)
        self.write("cmake/tsan.supp", "")
        self.write("build/helped_by", "1")
        self.write("deploy/a.yaml", "a: 1")
        self.write("tests/lint/b.yaml", "b: 1")
        self.make("good_test", CASE.format("A") + CASE.format("B"), reads="deploy/")
        self.make("other_test", CASE.format("C"), reads="tests/lint")
        was = kept_tests.ROOT, os.environ["PATH"]
        kept_tests.ROOT = self.root
        os.environ["PATH"] = f"{self.root}/bin:{was[1]}"
        self.addCleanup(lambda: (setattr(kept_tests, "ROOT", was[0]), os.environ.update(PATH=was[1])))

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def program(self, path, text):
        self.write(path, text)
        os.chmod(os.path.join(self.root, path), stat.S_IRWXU)

    def make(self, name, cases, reads="", code=0):
        self.program(f"build/{name}", f"#!/bin/sh\n# {reads}\necho '<t>{cases}</t>' >gtest/{name}.xml\nexit {code}\n")

    def run_all(self, *arguments):
        """(the tests that were run, the last line, the failures)"""
        self.write("build/ran", "")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            kept_tests.main([*arguments, self.build, "unit"])
        lines = said.getvalue().splitlines()
        with open(os.path.join(self.build, "ran"), encoding="utf-8") as ran:
            return ran.read().split(), lines[-1], [line for line in lines if line.startswith("FAILED")]

    def assert_ran(self, *tests):
        ran, last, failed = self.run_all()
        self.assertEqual((ran, last, failed), (list(tests), "3 passed, 0 failed", []))

    def test_what_passed_is_counted_and_not_run(self):
        self.assert_ran("good_test", "other_test")
        self.assert_ran()
        self.assertEqual(self.run_all("--again")[0], ["good_test", "other_test"])

    def test_a_changed_program_is_run(self):
        self.assert_ran("good_test", "other_test")
        self.make("other_test", CASE.format("D"), reads="tests/lint")
        self.assert_ran("other_test")

    def test_so_is_who_starts_one(self):
        self.assert_ran("good_test", "other_test")
        self.write("build/helped_by", "2")
        self.assert_ran("good_test")

    def test_so_is_who_reads_a_changed_file(self):
        self.assert_ran("good_test", "other_test")
        self.write("deploy/a.yaml", "a: 2")
        self.assert_ran("good_test")
        self.write("tests/lint/new.yaml", "")
        self.assert_ran("other_test")
        self.write("deploy/README.md", "for people")
        self.assert_ran()

    def test_so_are_all_with_another_environment(self):
        self.assert_ran("good_test", "other_test")
        os.environ["MUSTER_MADE_UP"] = "1"
        self.addCleanup(os.environ.pop, "MUSTER_MADE_UP")
        self.assert_ran("good_test", "other_test")

    def test_a_change_that_is_undone_was_tested_already(self):
        self.assert_ran("good_test", "other_test")
        self.write("deploy/a.yaml", "a: 2")
        self.assert_ran("good_test")
        self.write("deploy/a.yaml", "a: 1")
        self.assert_ran()

    def test_what_failed_is_never_kept(self):
        for cases, code, wrong in (
                (CASE.format("A") + FAILED, 1, "other_test: Suite.Bad"),
                (CASE.format("A") + SKIPPED, 0, "other_test: Suite.Lazy (skipped or disabled)"),
                (CASE.format("A"), 3, "other_test (exit status)")):
            self.make("other_test", cases, code=code)
            for _ in range(2):
                ran, last, failed = self.run_all()
                self.assertIn("other_test", ran)
                self.assertEqual((last, failed), ("3 passed, 1 failed", [f"FAILED: {wrong}"]))

    def test_one_that_dies_leaves_no_result_of_an_earlier_run(self):
        self.assert_ran("good_test", "other_test")
        self.program("build/other_test", "#!/bin/sh\nkill -9 $$\n")
        _, last, failed = self.run_all()
        self.assertEqual((last, failed), (
            "2 passed, 1 failed", ["FAILED: other_test (no result: crashed, timed out or didn't start)"]))

    def test_what_is_run_again_must_pass_again(self):
        self.assert_ran("good_test", "other_test")
        # Fails by what no digest knows.
        self.program("bin/ctest", CTEST.replace('"fail" if code else "run"', '"fail"'))
        self.assertEqual(len(self.run_all("--again")[2]), 2)
        self.assertEqual(self.run_all()[0], ["good_test", "other_test"])

    def test_no_tests_is_a_failure(self):
        for name in ("good_test", "other_test"):
            os.remove(os.path.join(self.build, name))
        self.assertEqual(self.run_all()[1], "0 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
