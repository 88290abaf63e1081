#!/usr/bin/env python3
"""Holds the tree to the rules of the house that no compiler checks.

    cmake/house.py            every breach, a line each; exit status 1 if there is one

  include   a folder includes only what the tables below allow; both are acyclic
  pure      the core does no I/O, starts no thread and reads no clock
  owner     a class of an owner in coscheduling/ has no public data, and hands out none of its state
            to be changed
  budget    coscheduling/ without tests is small
  size      so is each source file
  name      no file is called utils or helpers
  version   what names Muster's version names the one of CMakeLists.txt
  link      what a document points to in the tree is there, headings too
  named     what a page for operators names of Muster is there: metrics, reasons and states, settings,
            annotations, tests, flags, what `./run` takes

house_test.py shows each rule failing.
"""
import os
import re
import sys

# What each folder may include beside itself. Folders of kube/ count apart, all others whole.
FOLDERS = {
    "proto": [],
    "printers": ["proto"],
    "http": [],
    "kube/objects": [],
    "kube": ["kube/objects"],
    "kube/client": ["kube", "kube/objects"],
    "kube/embedded": ["http", "kube", "kube/objects"],
    "kube/simulators": ["kube", "kube/objects", "kube/embedded"],
    "cluster": ["kube/objects"],
    "quota": ["kube/objects"],
    "coscheduling": ["proto", "kube/objects", "cluster", "quota"],
    "writes": ["kube", "kube/objects", "cluster", "coscheduling"],
    "yaml": ["kube/objects", "coscheduling"],
    "lint": ["proto", "kube", "kube/objects", "kube/embedded", "cluster", "quota", "coscheduling",
             "writes", "yaml"],
    "simulation": ["proto", "printers", "kube", "kube/objects", "kube/embedded", "kube/simulators",
                   "cluster", "quota", "coscheduling", "writes", "yaml"],
    "extender": ["proto", "printers", "http", "kube", "kube/objects", "kube/client", "cluster",
                 "quota", "coscheduling", "writes", "yaml", "lint"],
    "lab": ["proto", "printers", "http", "kube", "kube/objects", "kube/client", "kube/embedded",
            "kube/simulators", "simulation", "extender"],
    "worker": [],
}
# tests/ may include everything, and tests everywhere tests/ (its full.h); beyond that only these.
TESTS_OF = {
    "kube": ["kube/client", "kube/embedded"],
    "extender": ["kube/embedded"],
}

# Within coscheduling/: each owner, after those that it may ask.
OWNERS = {
    "placement/planner": [],
    "gangs": [],
    "admission": ["gangs"],
    "placement": ["placement/planner", "gangs", "admission"],
    "provisioning": ["placement/planner", "gangs", "admission", "placement"],
    "commit": ["placement/planner", "gangs", "admission", "placement", "provisioning"],
    "report": ["placement/planner", "gangs", "admission", "placement", "provisioning", "commit"],
}
# Files of coscheduling/ itself that use every owner, and that none uses. All others there are values
# that all share, and that use no owner.
ENGINE = ["engine", "observations", "owners"]

# What does I/O, starts threads or reads a clock.
PURE = ["cluster", "quota", "coscheduling"]
IMPURE = re.compile(
    r"absl/(time/clock|synchronization/)|boost/|curl/|grpc|netinet/|sys/|unistd\.h"
    r"|(condition_variable|filesystem|fstream|future|iostream|mutex|thread)$")

COSCHEDULING_LINES = 13_150
FILE_LINES = 900
SOURCES = (".cc", ".h", ".cu", ".cuh", ".go", ".py")

# Breaches that are still to be mended. One that is mended must go from here.
NOT_YET = {
    "include": [],
    "owner": [],
    "budget": [],
}


def is_test(path):
    """Whether only tests are made of it."""
    return bool(re.search(r"(_test\.(cc|h|go)|_test\.py)$|(^|/)(test_|testing|oracle\.)|^tests/", path))


def tree(root):
    """The project's own files, as paths from the root."""
    for folder, folders, files in os.walk(root):
        at_root = folder == root
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not (
            at_root and (f.startswith("build") or f == "out")))
        for name in sorted(files):
            yield os.path.relpath(os.path.join(folder, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


# ---- include, pure ----

def folder_of(path):
    parts = path.split("/")
    if parts[0] == "muster":  # generated from proto/muster
        return "proto"
    return "/".join(parts[:2]) if parts[0] == "kube" and len(parts) > 2 else parts[0]


def owner_of(path):
    """The owner in coscheduling/ that a file belongs to; 'shared' or 'engine' outside of them."""
    inside = path.removeprefix("coscheduling/")
    for owner in sorted(OWNERS, key=len, reverse=True):
        if inside.startswith(owner + "/"):
            return owner
    if "/" in inside:
        return inside.split("/")[0]
    return "engine" if inside.split(".")[0].removesuffix("_test") in ENGINE else "shared"


def may_ask(owner):
    """The owners, or 'shared', that `owner` may include."""
    if owner == "shared":
        return []
    return OWNERS.get(owner, []) + ["shared"]


def check_order(table, what):
    """A table is in order if each row names only rows before it; so it has no cycle."""
    before = set()
    for row, allowed in table.items():
        for other in allowed:
            if other not in before:
                yield "include", "cmake/house.py", f"{what}: {row} comes before {other}, which it names"
        before.add(row)


def check_includes(root, paths):
    yield from check_order(FOLDERS, "FOLDERS")
    yield from check_order(OWNERS, "OWNERS")
    for path in paths:
        if not path.endswith((".cc", ".h", ".cu", ".cuh")) or path.startswith("tests/"):
            continue
        own, test = folder_of(path), is_test(path)
        if own not in FOLDERS:
            yield "include", path, f"{own}/ has no place in FOLDERS of cmake/house.py"
            continue
        allowed = [own] + FOLDERS[own] + (["tests"] + TESTS_OF.get(own, []) if test else [])
        for include in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', read(root, path), re.MULTILINE):
            other = folder_of(include)
            if own in PURE and not test and IMPURE.match(include):
                yield "pure", path, f"includes {include}, and {own}/ is handed all that"
            if other not in FOLDERS and other != "tests":
                continue
            if other not in allowed:
                yield "include", path, f"includes {include}: {own}/ may not use {other}/"
            elif own == other == "coscheduling" and not test:
                asks, asked = owner_of(path), owner_of(include)
                if asks not in ("engine", asked) and asked not in may_ask(asks):
                    yield "include", path, f"includes {include}: {asks} may not use {asked}"


# ---- owner ----

def without_comments(text):
    """The code alone: comments, preprocessor lines, and what literals say are blanked."""
    text = re.sub(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')',
                  lambda m: '""' if m[1] else " ", text, flags=re.DOTALL)
    return re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.MULTILINE)


def end_of_block(text, begin):
    """The index behind the brace that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def outside_brackets(text):
    """`text` without template arguments and without what follows a function's name."""
    depth, said = 0, ""
    text = re.sub(r"operator\s*(\(\s*\)|[^\w\s(]+)", "operator_sign", text).replace("->", "@")
    for char in text:
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            said += char
    return said


def declarations(body):
    """(access, text) of each member of a class; bodies of functions and types read as '{}'."""
    access, text, at, parentheses = "private", "", 0, 0
    while at < len(body):
        char = body[at]
        parentheses += {"(": 1, ")": -1}.get(char, 0)
        if char == "{":
            at = end_of_block(body, at)
            following = body[at:].lstrip()[:1]
            text += "{}"
            if following not in (",", "{", ";") and not parentheses and "(" in outside_brackets(text):
                yield access, text.strip()
                text = ""
            continue
        label = re.match(r"(public|protected|private)\s*:(?!:)", body[at:]) if not text.strip() else None
        if label:
            access, text, at = label[1], "", at + label.end()
            continue
        if char == ";":
            yield access, text.strip()
            text = ""
        else:
            text += char
        at += 1


def what_is_open(text):
    """What is wrong with a public member declared like this, or None."""
    text = re.sub(r"\[\[.*?\]\]", " ", text).strip()
    while text.startswith("template"):
        depth = 0
        for at, char in enumerate(text):
            depth += {"<": 1, ">": -1}.get(char, 0)
            if char == ">" and depth == 0:
                text = text[at + 1:].strip()
                break
        else:
            return None
    if not text or re.match(r"(using|typedef|friend|static_assert|requires)\b", text):
        return None
    if re.match(r"(enum|struct|class|union)\b", text):
        # A type of its own; a variable of it may follow.
        return "public data" if re.search(r"\{\}\s*\w", text) else None
    plain = outside_brackets(text)
    head = plain.split("=")[0].split("{")[0]
    if "(" not in head:
        constant = re.search(r"\bstatic\b", head) and re.search(r"\bconst(expr)?\b", head)
        return None if constant else "public data"
    result = head.split("(")[0]
    name = re.search(r"~?\w+\s*$", result)
    result = result[:name.start()] if name else result
    trailing = re.search(r"\)[^()]*@\s*([^{;=]+)", plain)
    if trailing:
        result = trailing[1]
    if "operator_sign" in head and re.search(r"operator_sign\s*$", head.split("(")[0]) and \
            re.search(r"operator\s*([-+*/%&|^]?=(?!=)|\+\+|--|<<|>>)", text):
        return None  # returns the object itself
    if re.search(r"[&*]\s*$", result) and not re.search(r"\bconst\b", result):
        return "hands out its state to be changed"
    return None


def check_owners(root, paths):
    for path in paths:
        if not path.startswith("coscheduling/") or not path.endswith(".h") or is_test(path):
            continue
        if owner_of(path) in ("shared", "engine"):
            continue
        code = without_comments(read(root, path))
        for found in re.finditer(r"(?<!enum )\bclass\s+(?:\[\[.*?\]\]\s*)?(\w+)[^;{}()=,>]*\{", code):
            begin = found.end() - 1
            for access, text in declarations(code[begin + 1:end_of_block(code, begin) - 1]):
                wrong = what_is_open(text) if access == "public" else None
                if wrong:
                    text = " ".join(text.split())
                    yield "owner", path, f"class {found[1]}: {wrong}: {text[:80]}"


# ---- budget, size, name, version ----

def check_sizes(root, paths):
    coscheduling = 0
    for path in paths:
        if not path.endswith(SOURCES):
            continue
        lines = read(root, path).count("\n")
        if lines > FILE_LINES:
            yield "size", path, f"has {lines:,} lines; a source file has at most {FILE_LINES}"
        if path.startswith("coscheduling/") and not is_test(path):
            coscheduling += lines
    if coscheduling > COSCHEDULING_LINES:
        yield "budget", "coscheduling", (
            f"has {coscheduling:,} lines without tests; at most {COSCHEDULING_LINES:,}")


def check_names(_, paths):
    for path in paths:
        if re.search(r"(^|[_.-])(utils?|helpers?)([_.-]|$)", os.path.basename(path), re.IGNORECASE):
            yield "name", path, "says nothing about what is in it"


def check_version(root, paths):
    found = re.search(r"^project\(muster VERSION ([0-9.]+)", read(root, "CMakeLists.txt"), re.MULTILINE)
    version = found[1] if found else "none"
    for path in paths:
        if path == "CHANGELOG.md":
            newest = re.search(r"^## ([0-9.]+)", read(root, path), re.MULTILINE)
            named = [newest[1]] if newest else ["no version"]
        elif path == "deploy/chart/Chart.yaml":
            named = re.findall(r"^(?:version|appVersion): *(\S+)", read(root, path), re.MULTILINE)
        elif path.endswith((".md", ".yaml", "Dockerfile")) and not path.startswith("tests/"):
            named = re.findall(r"\b(?:muster(?:-[a-z]+)?:|newTag: |image\.version=\")(\d+\.\d+\.\d+)", read(root, path))
        else:
            continue
        for other in sorted(set(named)):
            if other != version:
                yield "version", path, f"names {other}; CMakeLists.txt says {version}"


def headings(text):
    """The anchors of a document's headings, as the hosts of repositories make them."""
    outside = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ +(.+?) *$", outside, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(root, paths):
    for path in paths:
        if not path.endswith(".md"):
            continue
        folder = os.path.dirname(path)
        for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", read(root, path)):
            if re.match(r"\w+:", target):
                continue
            to = os.path.normpath(os.path.join(folder, target)) if target else path
            if os.path.isdir(os.path.join(root, to)):
                to = os.path.join(to, "README.md") if heading else to
            if not os.path.exists(os.path.join(root, to)):
                yield "link", path, f"points to {target}, which isn't there"
            elif heading and to.endswith(".md") and heading not in headings(read(root, to)):
                yield "link", path, f"points to heading {heading} of {to}, which isn't there"


# The pages that operators read.
OPERATORS = re.compile(r"(docs/[^/]+|README|SECURITY|deploy/README)\.md$")


def check_named(root, paths):
    texts = {}

    def within(pattern):
        """All sources whose path matches."""
        if pattern not in texts:
            texts[pattern] = "\n".join(read(root, path) for path in paths if re.search(pattern, path))
        return texts[pattern]

    service = r"^(extender|lint|lab)/.*(?<!_test)\.cc$"
    named = (
        # what it is, how a page names it, whether it is there
        ("metric", r"\b(muster_[a-z_]+)\b", lambda name:
            f'"{re.sub("_(bucket|sum|count)$", "", name)}"' in within(r"^extender/.*\.cc$") or
            f'"{name}"' in within(r"^extender/.*\.cc$")),
        ("reason or state", r"(?<![\w$])([A-Z]{3,}(?:_[A-Z]+)+)\b", lambda name:
            re.search(rf"\b{name} = ", within(r"\.proto$"))),
        ("annotation or label", r"(?<!\.)\b(muster\.dev/[a-z][a-z-]*[a-z])", lambda name:
            name in within(r"\.(cc|h|yaml)$")),
        ("setting", r"`(?:config\.)?(?:engine|extender|webhook|query)\.([A-Za-z]+)\b", lambda name:
            f'"{name}"' in within(r"^(yaml|extender)/.*\.cc$") or f'"{name}"' in within(r"values\.schema\.json$")),
        ("test", r"\b(Test[A-Z]\w{6,})\b", lambda name: f"func {name}(" in within(r"_test\.go$")),
        ("flag of muster", r"(?:^\$ |[`|] *)muster [a-z][^`\n|]*?(--[a-z-]+)", lambda name: f"{name}\"" in within(service) or
            f"{name}," in within(service)),
        ("command of ./run", r"\./run ([a-z]+)", lambda name: re.search(rf"^  {name}[ )]", within(r"^run$"), re.MULTILINE)),
        ("soak", r"\./run soak ([a-z-]+)", lambda name: f'"$1" {name} ' in within(r"^run$")),
        ("benchmark", r"\./run bench ([a-z]+)", lambda name: name == "admission" or f"bench/{name}_bench.cc" in "\n".join(paths)),
    )
    for path in paths:
        if not OPERATORS.match(path):
            continue
        text = read(root, path)
        for what, pattern, is_there in named:
            for name in sorted(set(re.findall(pattern, text, re.MULTILINE))):
                if not is_there(name):
                    yield "named", path, f"names {what} {name}, which isn't there"


def breaches(root):
    """(rule, path, what is wrong) of everything in the tree, NOT_YET aside."""
    paths = list(tree(root))
    for check in (check_includes, check_owners, check_sizes, check_names, check_version,
                  check_links, check_named):
        yield from check(root, paths)


def findings(root, not_yet):
    """A line for each breach that isn't in `not_yet`, and for each row there that is none."""
    found = list(breaches(root))
    for rule, path, wrong in found:
        if path not in not_yet.get(rule, []):
            yield f"{path}: {rule}: {wrong}"
    broken = {(rule, path) for rule, path, _ in found}
    for rule, paths in not_yet.items():
        for path in paths:
            if (rule, path) not in broken:
                yield f"{path}: {rule}: is mended; take it out of NOT_YET in cmake/house.py"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    lines = list(findings(root, NOT_YET))
    print("\n".join(lines) if lines else
          f"house: in order; {sum(map(len, NOT_YET.values()))} breaches are still to be mended")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
