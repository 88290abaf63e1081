#!/usr/bin/env python3
"""test.sh with stand-ins for what it builds: which cases it runs where, and what it counts."""
import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
GO = """#!/bin/sh
[ "$1" != test ] || cp "$CASES" "$6"
"""
# Says what go test -v says of the cases that $VERDICTS has, a name, a verdict and seconds a line, and
# notes in $RAN what it was asked for.
CASES = r"""#!/usr/bin/env python3
import os, re, sys
lines = [line.split() for line in open(os.environ["VERDICTS"])]
if "-test.list" in sys.argv:
    print("\n".join(name for name, _, _ in lines if "/" not in name) + "\nok")
    sys.exit()
wanted = sys.argv[sys.argv.index("-test.run") + 1]
skip = sys.argv[sys.argv.index("-test.skip") + 1] if "-test.skip" in sys.argv else "^$"
open(os.environ["RAN"], "a").write(wanted + "\n")
for name, verdict, seconds in lines:
    if re.search(wanted, name.split("/")[0]) and not re.search(skip, name):
        print(f"{'    ' if '/' in name else ''}--- {verdict}: {name} ({seconds}s)")
        if verdict == "PANIC":
            sys.exit(2)
sys.exit("FAIL" in [verdict for _, verdict, _ in lines])
"""


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name in ("build", "bin", "deploy", "tests/cluster/jobs", "tests/cluster/kubelet",
                     "tests/cluster/conformance", "tests/chart", "tests/kueue"):
            os.makedirs(os.path.join(self.root, name))
        shutil.copy(os.path.join(HERE, "test.sh"), os.path.join(self.root, "tests/cluster/test.sh"))
        self.program("tests/cluster/build.sh", '#!/bin/sh\necho "/programs $1"\n')
        self.program("tests/cluster/conformance/test.sh", "#!/bin/sh\necho '0 passed, 0 failed'\n")
        self.program("tests/chart/build.sh", '#!/bin/sh\necho "helm $1"\n')
        self.program("tests/kueue/build.sh", '#!/bin/sh\necho "oracle $1"\n')
        self.program("bin/go", GO)
        self.program("bin/strip", '#!/bin/sh\nsed /debug/d "$4" >"$3"\n')
        self.program("build/muster", "1\n")
        self.program("build/muster-worker", "1\n")
        self.program("cases", CASES)
        self.verdicts = {"TestA": "PASS", "TestA/part": "PASS", "TestB": "PASS", "TestC": "PASS",
                         "TestPeerD": "PASS", "TestTrainingE": "PASS", "TestSoakF": "PASS"}

    def program(self, path, text):
        path = os.path.join(self.root, path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, stat.S_IRWXU)

    def run_all(self, *arguments):
        """(which cases each control plane was asked for, the last line)"""
        with open(os.path.join(self.root, "verdicts"), "w", encoding="utf-8") as file:
            file.writelines(f"{name} {verdict} {9.5 if name == 'TestB' else 1.5}\n"
                            for name, verdict in self.verdicts.items())
        ran = os.path.join(self.root, "ran")
        open(ran, "w", encoding="utf-8").close()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        environment.update(PATH=f"{self.root}/bin:{environment['PATH']}", CASES=f"{self.root}/cases",
                           VERDICTS=f"{self.root}/verdicts", RAN=ran, MUSTER_PLANES="2")
        done = subprocess.run([os.path.join(self.root, "tests/cluster/test.sh"), *arguments],
                              env=environment, capture_output=True, text=True, check=False)
        last = done.stdout.splitlines()[-1]
        if "--build" not in arguments:
            self.assertEqual(done.returncode == 0, last.endswith(" 0 failed"), done.stdout + done.stderr)
        with open(ran, encoding="utf-8") as file:
            return sorted(set(re.findall(r"Test\w+", line)) for line in file), last

    def ran(self, *arguments):
        planes, last = self.run_all(*arguments)
        return sorted(set().union(*planes)), last

    def test_cases_are_dealt_to_control_planes_by_what_they_took(self):
        self.assertEqual(self.ran(), (["TestA", "TestB", "TestC"], "4 passed, 0 failed"))
        planes, _ = self.run_all("--again")
        self.assertIn({"TestB"}, planes)
        self.assertIn({"TestA", "TestC"}, planes)

    def test_others_and_soaks_run_when_they_are_asked_for(self):
        self.assertEqual(self.ran("--peers"), (["TestPeerD", "TestTrainingE"], "2 passed, 0 failed"))
        self.assertEqual(self.ran("-run", "TestSoakF"), (["TestSoakF"], "1 passed, 0 failed"))
        self.assertEqual(self.ran("-run", "Test[AP]"), ([], "2 passed, 0 failed"))
        self.assertEqual(self.ran("-run", "TestPeerD"), (["TestPeerD"], "1 passed, 0 failed"))

    def test_what_is_needed_can_be_built_before(self):
        self.assertEqual(self.run_all("-run", "TestPeerD", "--build")[0], [])

    def test_what_passed_is_counted_and_not_run(self):
        self.ran()
        self.assertEqual(self.ran(), ([], "4 passed, 0 failed"))
        self.assertEqual(self.ran("--again")[0], ["TestA", "TestB", "TestC"])

    def test_all_are_run_when_what_they_use_has_changed(self):
        for path, text in (("build/muster", "2\n"), ("cases", CASES + "# changed\n"),
                           ("deploy/a.yaml", ""), ("tests/cluster/jobs/a.yaml", ""),
                           ("tests/cluster/build.sh", '#!/bin/sh\necho "/others $1"\n')):
            self.ran()
            self.program(path, text)
            self.assertEqual(len(self.ran()[0]), 3, path)
        self.program("build/muster", "2\ndebug\n")
        self.assertEqual(self.ran()[0], [])

    def test_the_worker_concerns_those_that_train(self):
        self.ran()
        self.ran("--peers")
        self.program("build/muster-worker", "2\n")
        self.assertEqual(self.ran()[0], [])
        self.assertEqual(self.ran("--peers")[0], ["TestTrainingE"])

    def test_what_failed_is_never_kept(self):
        for name, verdict, last in (("TestA/part", "FAIL", "3 passed, 1 failed"),
                                    ("TestA/part", "SKIP", "3 passed, 1 failed"),
                                    ("TestC", "PANIC", "3 passed, 1 failed")):
            was = self.verdicts[name]
            self.verdicts[name] = verdict
            for arguments in (["--again"], []):
                ran, said = self.ran(*arguments)
                self.assertIn(name.split("/")[0], ran)
                self.assertEqual(said, last)
            self.verdicts[name] = was


if __name__ == "__main__":
    unittest.main()
