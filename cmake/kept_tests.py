#!/usr/bin/env python3
"""Runs the tests of a finished build that have a label, but not those that passed as they are now.

    cmake/kept_tests.py [--again] BUILD_FOLDER LABEL [LABEL...]

A test that passed is only counted as long as nothing has changed that it depends on: its program and
the programs that CMake says it starts, the files that it reads, the libraries that are installed, and
variables MUSTER_*. --again runs it all the same. A GoogleTest program counts by its cases, and a case
that was skipped or is disabled has failed; any other test, and a program that died, counts as one.

The last line is "N passed, N failed", and each failure has a line "FAILED: ...".

Tests run from the project's root and name what they read from there. So a test reads a folder (of the
root, or of tests/) whose name its program holds; a fuzz target reads what fuzz.sh says.
"""
import hashlib
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What isn't read by a test, but compiled or for people.
SOURCES = (".cc", ".h", ".cu", ".cuh", ".go", ".in", ".md", ".mod", ".proto", ".py", ".sum", "CMakeLists.txt")
KEEP_DAYS = 30


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def digest_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined(parts):
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Data:
    """The files that tests may read, by folder."""

    def __init__(self, root):
        self.root = root
        self.digests = {}

    def folders(self):
        for top in sorted(os.listdir(self.root)):
            if top.startswith((".", "build")) or top == "out" or not os.path.isdir(
                    os.path.join(self.root, top)):
                continue
            if top == "tests":
                yield from (f"tests/{name}" for name in sorted(os.listdir(os.path.join(self.root, top)))
                            if os.path.isdir(os.path.join(self.root, top, name)))
            else:
                yield top

    def read_by(self, program):
        """The folders whose names the program holds."""
        with open(program, "rb") as file:
            text = file.read()
        return [folder for folder in self.folders() if (folder if "/" in folder else folder + "/").encode() in text]

    def digest(self, folder):
        if folder not in self.digests:
            parts = []
            for parent, folders, files in os.walk(os.path.join(self.root, folder)):
                folders.sort()
                parts += [f"{name} {digest_of_file(os.path.join(parent, name))}"
                          for name in sorted(files) if not name.endswith(SOURCES)]
            self.digests[folder] = combined(parts)
        return self.digests[folder]


class Build:
    """A build folder, the tests in it, and what is known of them."""

    def __init__(self, folder, data):
        self.folder = os.path.abspath(folder)
        self.data = data
        self.kept = os.path.join(self.folder, "passed")
        os.makedirs(self.kept, exist_ok=True)
        self.machine = combined(
            [digest_of_file(path) for path in ("/var/lib/dpkg/status", os.path.join(ROOT, "cmake/tsan.supp"))] +
            [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MUSTER_")])

    def tests(self, labels):
        shown = output("ctest", "--test-dir", self.folder, "--label-regex", f"^({'|'.join(labels)})$", "--show-only")
        return re.findall(r"^ *Test *#\d+: (\S+)", shown, re.MULTILINE)

    def program(self, test):
        fuzz = os.path.join("fuzz", test.removeprefix("fuzz_"))
        return fuzz if test.startswith("fuzz_") else test

    def digest(self, test):
        program = self.program(test)
        query = output("ninja", "-C", self.folder, "-t", "query", program)
        programs = [program] + re.findall(r"^ *\|\| *(\S+)", query, re.MULTILINE)
        paths = [os.path.join(self.folder, path) for path in programs]
        if not os.path.isfile(paths[0]):
            return "not built"  # and so fails
        if test.startswith("fuzz_"):
            reads = output("tests/fuzz/fuzz.sh", "--reads", program).split()
        else:
            reads = self.data.read_by(paths[0])
        return combined([self.machine] + [digest_of_file(path) for path in paths if os.path.isfile(path)] +
                        [f"{folder} {self.data.digest(folder)}" for folder in reads])

    def path(self, test, digest):
        return os.path.join(self.kept, f"{test}.{digest[:24]}")

    def cases_kept(self, test, digest):
        """How many cases it passed with, or None."""
        try:
            with open(self.path(test, digest), encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return None

    def keep(self, test, digest, cases):
        with open(self.path(test, digest), "w", encoding="ascii") as file:
            file.write(str(cases))

    def forget(self, test, digest):
        if os.path.exists(self.path(test, digest)):
            os.remove(self.path(test, digest))

    def forget_old(self):
        for name in os.listdir(self.kept):
            path = os.path.join(self.kept, name)
            if os.path.getmtime(path) < time.time() - KEEP_DAYS * 86400:
                os.remove(path)

    def run(self, tests, log):
        """Runs them; (name, passed as a whole) of each."""
        for test in tests:
            if os.path.exists(self.gtest_xml(test)):
                os.remove(self.gtest_xml(test))
        subprocess.run(["ctest", "--test-dir", self.folder, "--tests-regex", f"^({'|'.join(tests)})$",
                        "--parallel", str(os.cpu_count()), "--no-tests=error", "--output-on-failure",
                        "--output-junit", log], cwd=ROOT, check=False)
        return [(case.get("name"), case.get("status") == "run")
                for case in ElementTree.parse(log).getroot().iter("testcase")]

    def gtest_xml(self, test):
        return os.path.join(self.folder, "gtest", test + ".xml")

    def result(self, test, passed):
        """(cases that passed, what failed) of a test that was run."""
        try:
            root = ElementTree.parse(self.gtest_xml(test)).getroot()
        except (FileNotFoundError, ElementTree.ParseError):
            return (1, []) if passed and test.startswith("fuzz_") else (
                0, [f"{test} (no result: crashed, timed out or didn't start)"])
        good, bad = 0, []
        for case in root.iter("testcase"):
            name = f"{test}: {case.get('classname')}.{case.get('name')}"
            if case.find("failure") is not None:
                bad.append(name)
            elif case.get("result") != "completed":
                bad.append(f"{name} (skipped or disabled)")
            else:
                good += 1
        if not passed and not bad:
            bad.append(f"{test} (exit status)")
        return good, bad


def main(arguments):
    again = "--again" in arguments
    folder, *labels = [argument for argument in arguments if argument != "--again"]
    build = Build(folder, Data(ROOT))
    build.forget_old()
    tests = build.tests(labels)
    if not tests:
        print(f"FAILED: there are no tests with a label {' or '.join(labels)}\n0 passed, 1 failed")
        return 1
    digests = {test: build.digest(test) for test in tests}
    kept = {} if again else {test: cases for test in tests
                             if (cases := build.cases_kept(test, digests[test])) is not None}
    good, bad = sum(kept.values()), []
    if kept:
        print(f"unchanged since they passed: {len(kept)} of {len(tests)} tests, {good} cases", flush=True)
    rest = [test for test in tests if test not in kept]
    for test in rest:  # what is run again has to pass again
        build.forget(test, digests[test])
    if rest:
        log = os.path.join(build.folder, "Testing", f"{'-'.join(labels)}.junit.xml")
        ran = build.run(rest, log)
        for test, passed in ran:
            cases, wrong = build.result(test, passed)
            good += cases
            bad += wrong
            if not wrong:
                build.keep(test, digests[test], cases)
        bad += [f"{test} (wasn't run)" for test in set(rest) - {test for test, _ in ran}]
    for what in bad:
        print(f"FAILED: {what}")
    print(f"{good} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
